"""Only finished vectors of whole texts by one method are taken."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.search.rows import DIMENSION, info

from afterword.errors import DataError
from afterword.jobs.stored import to_notes
from afterword.search.stored import StoredRows, parts_of


def written(path: Path, *columns: str, vectors: tuple[str, ...] = ("vector",)) -> Path:
    lists = pa.array([[0.0] * DIMENSION], pa.list_(pa.float32(), DIMENSION))
    table = pa.table({**{name: ["a"] for name in columns}, **dict.fromkeys(vectors, lists)})
    pq.write_table(table.replace_schema_metadata(to_notes(dict.fromkeys(vectors, info()))), path)
    return path


def test_only_whole_texts_of_one_method_are_taken(tmp_path: Path):
    path = tmp_path / "a.parquet"
    assert StoredRows(written(path, "text", "n")).kinds(["n"]) == {"n": pa.string()}
    with pytest.raises(DataError, match="has no column 'id': it has text, vector"):
        StoredRows(written(path, "text")).kinds(["id"])
    with pytest.raises(DataError, match="does not hold whole texts"):
        StoredRows(written(path, "text", "chunk"))
    with pytest.raises(DataError, match="holds vectors of 2 methods, a, b"):
        StoredRows(written(path, "text", vectors=("a", "b")))


def test_a_folder_that_is_no_job_is_refused(tmp_path: Path):
    with pytest.raises(DataError, match="is not a job"):
        parts_of(tmp_path)
    assert parts_of(tmp_path / "v.parquet") == [tmp_path / "v.parquet"]
