"""Stored vectors are read in blocks: each text once, null rows left out, numbers kept."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from afterword.errors import DataError
from afterword.jobs import stored as module
from afterword.jobs.output import ParquetSink
from afterword.jobs.rows import Block
from afterword.jobs.stored import StoredVectors, VectorsInfo, holds_vectors, to_notes

TEXTS = ["a", None, "b", "a", "c", "", "b", "d"]
VECTORS = np.arange(16, dtype=np.float32).reshape(8, 2)


def write(path: Path, columns: dict[str, list] | None = None, gone: Sequence[int] = (1, 4)) -> None:
    info = VectorsInfo("m", {"name": "x"}, "f", "i", 2, False, None, np.zeros((8, 2), np.float32))
    columns = columns or {"text": TEXTS}
    vectors = VECTORS.copy()
    vectors[list(gone)] = np.nan
    kinds = {name: "text" if name in {"text", "word"} else "number" for name in columns}
    with path.open("wb") as file:
        sink = ParquetSink(file, kinds, {"vector": vectors[:0]}, to_notes({"vector": info}))
        for part in (slice(0, 5), slice(5, 8)):
            sink.write(Block({name: values[part] for name, values in columns.items()}, {"vector": vectors[part]}))
        sink.close()


@pytest.mark.parametrize("rows", [1, 3, 100])
def test_blocks_texts_and_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int):
    monkeypatch.setattr(module, "ROWS", rows)
    write(tmp_path / "v.parquet")
    file = StoredVectors(tmp_path / "v.parquet")
    numbers, vectors = (np.concatenate(parts) for parts in zip(*file.blocks("vector"), strict=True))
    assert numbers.tolist() == [0, 2, 5, 7] and np.array_equal(vectors, VECTORS[numbers])
    assert len(file) == 8 and file.missing() == 2
    assert file.texts(np.array([0, 5, 7])) == ["a", "", "d"]
    assert file.lines(np.array([0, 2, 7])) == [[1, 4], [3, 7], [8]]
    assert np.array_equal(file.vectors("vector", np.array([2, 7])), VECTORS[[2, 7]])


def test_a_text_is_found_by_the_first_of_its_rows_that_has_a_vector(tmp_path: Path):
    write(tmp_path / "v.parquet", gone=[0, 1, 2, 6])  # "a" has one in row 3, "b" has none
    file = StoredVectors(tmp_path / "v.parquet")
    ((numbers, vectors),) = file.blocks("vector")
    assert numbers.tolist() == [3, 4, 5, 7] and np.array_equal(vectors, VECTORS[numbers])
    assert file.texts(numbers) == ["a", "c", "", "d"] and file.missing() == 4
    assert file.lines(numbers) == [[1, 4], [5], [6], [8]]
    assert np.array_equal(file.vectors("vector", numbers), VECTORS[numbers])


def test_files_of_another_kind(tmp_path: Path):
    (tmp_path / "not.parquet").write_bytes(b"nothing")
    pq.write_table(pa.table({"text": ["a"]}), tmp_path / "texts.parquet")
    write(tmp_path / "v.parquet")
    found = [holds_vectors(tmp_path / name) for name in ("not.parquet", "texts.parquet", "no.parquet", "v.txt")]
    assert found == [False] * 4 and holds_vectors(tmp_path / "v.parquet")
    numbers = list(range(8))
    write(tmp_path / "w.parquet", {"line": numbers, "text": TEXTS, "word": TEXTS, "start": numbers, "end": numbers})
    with pytest.raises(DataError, match="holds no vectors of texts: it has the columns end, line, start, text, vector"):
        StoredVectors(tmp_path / "w.parquet")


def test_ten_thousand_rows_and_more(tmp_path: Path):
    write(tmp_path / "v.parquet", None)
    table = pq.read_table(tmp_path / "v.parquet")
    many = pa.concat_tables([table] * 2000)
    pq.write_table(many, tmp_path / "many.parquet")
    file = StoredVectors(tmp_path / "many.parquet")
    assert sum(len(rows) for rows, _ in file.blocks("vector")) == 4 and len(file) == 16_000
    assert len(file.lines(np.array([0]))[0]) == 4000


def test_each_row_of_a_file_of_chunks_stands_for_itself(tmp_path: Path):
    write(tmp_path / "v.parquet", {"text": TEXTS, "chunk": list(range(8))})
    (first, _), *_ = StoredVectors(tmp_path / "v.parquet").blocks("vector")
    assert first.tolist() == [0, 2, 3, 5, 6, 7]


def test_parts_are_read_as_one_file(tmp_path: Path):
    write(tmp_path / "v.parquet")
    table = pq.read_table(tmp_path / "v.parquet")
    parts = [tmp_path / f"{i}.parquet" for i in range(3)]
    for path, (start, rows) in zip(parts, ((0, 3), (3, 0), (3, 5)), strict=True):
        pq.write_table(table.slice(start, rows), path)
    whole, file = StoredVectors(tmp_path / "v.parquet"), StoredVectors(tmp_path, parts)
    rows = np.array([0, 5, 7])
    assert len(file) == 8 and file.missing() == 2 and np.array_equal(file.first, whole.first)
    assert file.texts(rows) == whole.texts(rows) and file.lines(rows) == whole.lines(rows)
    assert np.array_equal(file.vectors("vector", rows), whole.vectors("vector", rows))


def test_parts_of_different_encoders_and_no_part(tmp_path: Path):
    write(tmp_path / "a.parquet")
    table = pq.read_table(tmp_path / "a.parquet")
    other = {**table.schema.metadata, b"afterword.identity": b"other"}
    pq.write_table(table.replace_schema_metadata(other), tmp_path / "b.parquet")
    with pytest.raises(DataError, match=r"b.parquet was made by another encoder than .*a.parquet: embed"):
        StoredVectors(tmp_path, [tmp_path / "a.parquet", tmp_path / "b.parquet"])
    with pytest.raises(DataError, match="holds no vectors yet"):
        StoredVectors(tmp_path, [])
