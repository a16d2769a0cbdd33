"""The rows of an index are an input, in one order; ids that are hashes say what they are hashes by."""

from datetime import timedelta
from pathlib import Path

import pytest
from tests.index.rows import info, reader

from afterword.errors import DataError
from afterword.index.index import Index
from afterword.index.reread import IndexReader, ids_of
from afterword.index.rows import delete


def test_rows_are_read_without_their_vectors(tmp_path: Path):
    made = Index.create(tmp_path / "a", reader(["x", "y"], ids=["O'Brien", "😀"]), info())
    rows = IndexReader(made)
    found = [record.fields for record in rows]
    assert [(row["id"], row["text"]) for row in found if row] == [("O'Brien", "x"), ("😀", "y")]
    assert (rows.total, rows.at) == (2, 2) and {"hash", "vector"}.isdisjoint(rows.columns)


def test_what_ids_are_hashes_by_goes_from_index_to_index(tmp_path: Path):
    first = Index.create(tmp_path / "a", reader(["x"]), info(prompt="p: "))
    by = ids_of(first)
    assert by == {"identity": "1" * 32, "prompt": "p: ", "dimension": 4}
    second = Index.create(tmp_path / "b", reader(["x"], info(ids=by)), info(ids=by))
    assert ids_of(Index.open(second.folder)) == by
    assert ids_of(Index.create(tmp_path / "c", reader(["x"]), info(id_column="n"))) == {}


def test_late_chunks_cannot_be_read(tmp_path: Path):
    with pytest.raises(DataError, match="has --late chunks"):
        IndexReader(Index.create(tmp_path / "a", reader(["x"]), info(chunking="8", late=True)))


def test_an_index_whose_files_others_removed_is_named(tmp_path: Path):
    made_by = info(text_search=False)
    Index.create(tmp_path / "a", reader(["x", "y", "z"], made_by), made_by)
    delete(Index.open(tmp_path / "a"), ["0"])
    reading, writing = Index.open(tmp_path / "a"), Index.open(tmp_path / "a")
    delete(writing, ["1"])
    with pytest.warns(UserWarning, match="every version except the latest"):
        writing.table.optimize(cleanup_older_than=timedelta(0), delete_unverified=True)
    with pytest.raises(DataError) as caught:
        list(IndexReader(reading))
    said = str(caught.value)
    assert f"{tmp_path / 'a'} cannot be read: " in said
    assert "\n" not in said and "/root" not in said
