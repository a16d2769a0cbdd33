"""Columns of tables."""

import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from afterword.errors import DataError
from afterword.files.tables import BATCH, CsvReader, ParquetReader


def rows(text: bytes, field: str | None = None) -> list:
    reader = CsvReader(io.BytesIO(text), None, field)
    return [(r.line, r.problem or r.fields[reader.field]) for r in reader]


def test_a_table():
    text = 'id,text\n1,"a, ""b"""\n2,"two\nlines"\n3,c\n'
    assert rows(text.encode()) == [(2, 'a, "b"'), (3, "two\nlines"), (5, "c")]
    assert rows(text.replace("\n", "\r\n").encode())[1] == (3, "two\nlines")
    assert rows(text.encode(), "id") == [(2, "1"), (3, "2"), (5, "3")]


def test_the_only_column_needs_no_name():
    assert rows(b"sentence\na\n\nb\n") == [(2, "a"), (3, ""), (4, "b")]


def test_rows_that_do_not_fit_the_header():
    found = rows(b"id,text\n1\n1,a,b\n\n1,c\n")
    assert [line for line, _ in found] == [2, 3, 4, 5] and found[3][1] == "c"
    assert found[0][1] == "has 1 fields, the header has 2: one is missing"
    assert found[1][1] == "has 3 fields, the header has 2: put texts with commas in double quotes"


def test_a_long_field_is_a_field():
    assert rows(b"id,text\n1," + b"x" * 500_000 + b"\n") == [(2, "x" * 500_000)]


@pytest.mark.parametrize("text", [b"", b"a,b\n1,2\n"])
def test_no_such_column(text: bytes):
    with pytest.raises(DataError, match="no column 'text'"):
        rows(text)


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


@pytest.mark.parametrize("kind", [pa.large_string(), pa.dictionary(pa.int32(), pa.string()), pa.null()])
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
