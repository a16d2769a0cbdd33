"""Columns of .parquet files."""

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from afterword.errors import DataError
from afterword.files.parquet import BATCH, ParquetReader, ParquetRowsReader


def table(path: Path, **columns: object) -> Path:
    pq.write_table(pa.table(columns), path, row_group_size=700)
    return path


def test_a_column_of_a_parquet_file(tmp_path: Path):
    texts = [None if i % 100 == 0 else f"text {i}" for i in range(3 * BATCH)]
    reader = ParquetReader(table(tmp_path / "a.parquet", id=range(3 * BATCH), text=texts))
    seen = []
    for i, record in enumerate(reader, 1):
        assert record.line == reader.at == i
        seen.append(record.fields["text"])
    assert seen == texts and reader.total == 3 * BATCH


@pytest.mark.parametrize(
    "kind", [pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string()), pa.null()]
)
def test_all_kinds_of_strings(tmp_path: Path, kind: pa.DataType):
    texts = [None, None] if kind == pa.null() else ["a", "每"]
    reader = ParquetReader(table(tmp_path / "a.parquet", text=pa.array(texts, kind)))
    assert [r.fields["text"] for r in reader] == texts


def test_other_columns_are_refused(tmp_path: Path):
    path = table(tmp_path / "a.parquet", id=[1], text=["a"], about=["b"])
    with pytest.raises(DataError, match=r"column 'id' of .* holds int64: choose a column of strings"):
        ParquetReader(path, "id")
    with pytest.raises(DataError, match="no column 'x': it has id, text, about"):
        ParquetReader(path, "x")
    assert [dict(r.fields) for r in ParquetReader(path, beside=["about"])] == [{"text": "a", "about": "b"}]


def test_two_columns_of_one_name_are_an_error(tmp_path: Path):
    pq.write_table(pa.Table.from_arrays([pa.array(["a"])] * 2, names=["text", "text"]), tmp_path / "a.parquet")
    for reader in (ParquetReader, ParquetRowsReader):
        with pytest.raises(DataError, match=r"a\.parquet has two columns named 'text': rename one$"):
            reader(tmp_path / "a.parquet")


def test_other_columns_have_any_type(tmp_path: Path):
    values = {
        "id": pa.array([1, None], pa.uint64()),
        "at": pa.array([1, 1234567890123456789], pa.timestamp("ns")),
        "tags": pa.array([["a"], None], pa.large_list(pa.large_string())),
        "raw": pa.array([b"\xff", b""], pa.large_binary()),
        "of.one": pa.array([{"a": 1}, None], pa.struct([("a", pa.int8())])),
    }
    reader = ParquetReader(table(tmp_path / "a.parquet", text=["a", "b"], **values), beside=list(values))
    assert reader.kinds == {name: column.type for name, column in values.items()}
    rows = [r.fields for r in reader]
    for name, column in values.items():
        assert pa.array([row[name] for row in rows], column.type).equals(column)


WITHOUT_PANDAS = """
import sys
from pathlib import Path

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "pandas":
            raise ImportError(name)

sys.meta_path.insert(0, Hidden())
from afterword.errors import DataError
from afterword.files.parquet import ParquetReader

for name in ("at", "all"):
    try:
        print([record.fields[name] for record in ParquetReader(Path(sys.argv[1]), beside=[name])])
    except DataError as e:
        print(e)
assert "pandas" not in sys.modules and "torch" not in sys.modules
"""


def test_nanoseconds_without_pandas(tmp_path: Path):
    at = pa.array([1234567890123456789], pa.timestamp("ns"))
    path = table(tmp_path / "a.parquet", text=["a"], at=at, all=pa.array([at.to_pylist()], pa.list_(at.type)))
    made = subprocess.run([sys.executable, "-c", WITHOUT_PANDAS, path], capture_output=True, text=True, check=True)
    first, second = made.stdout.splitlines()
    assert first == "[1234567890123456789]"
    assert second.startswith("a value of type list<element: timestamp[ns]> cannot be read without pandas: Nanosecond")


def test_bytes_that_are_not_utf8_are_a_problem_of_their_row(tmp_path: Path):
    bad = pa.Array.from_buffers(pa.string(), 2, pa.array([b"a", b"\xff"]).buffers())
    reader = ParquetReader(table(tmp_path / "a.parquet", text=bad))
    assert [r.problem and r.problem[:12] for r in reader] == [None, "is not UTF-8"]


def test_a_broken_file(tmp_path: Path):
    path = table(tmp_path / "a.parquet", text=[f"text {i}" * 20 for i in range(5000)])
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match="is not a parquet file"):
        ParquetReader(path)
    path.write_bytes(whole[:4] + b"\0" * 3000 + whole[3004:])
    with pytest.raises(DataError, match=r"a\.parquet"):
        list(ParquetReader(path))
