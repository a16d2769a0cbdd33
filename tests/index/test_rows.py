"""Rows are told apart by their ids and by what their vectors depend on; what is gone is found, and deleted by id."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.index.rows import info, reader

from afterword.index.index import Index
from afterword.index.rows import Located, NewRows, delete, hash_of
from afterword.jobs.items import Item

ODD = ["O'Brien", 'say "no"', "👩‍👩‍👧", "x" * 10_000, "%_\\", "'; DROP TABLE rows; --", "银行"]


def located(item: Item) -> Located:
    return Located(0, 0, len(item.text or ""), item.text or "")


def by_line(item: Item) -> str | None:
    return str(item.line)


def taken(rows: NewRows, texts: list[str]) -> list[Item]:
    return list(rows.new(Item(line, text) for line, text in enumerate(texts, 1)))


def test_without_ids_equal_texts_are_one_row():
    rows = NewRows(info(), lambda item: None, located, {})
    found = taken(rows, ["a", "b", "a"])
    assert [item.beside.id for item in found] == [hash_of("a", info()), hash_of("b", info())]
    assert rows.counts == {"repeated": 1}


def test_an_id_of_two_texts_is_rejected():
    rows = NewRows(info(), lambda item: "7", located, {})
    found = taken(rows, ["a", "b", "a"])
    assert [item.problem for item in found] == [None, "has the id '7' of the row in line 1"]
    assert rows.counts == {"repeated": 1}


def test_an_empty_id_is_rejected():
    (found,) = taken(NewRows(info(), lambda item: "", located, {}), ["a"])
    assert found.problem == "has an empty id"


@pytest.mark.parametrize("other", [{"identity": "2" * 32}, {"prompt": "p: "}, {"chunking": "256"}, {"dimension": 5}])
def test_a_hash_depends_on_all_that_makes_a_vector(other: dict):
    assert hash_of("a", info()) != hash_of("a", info(**other))
    assert hash_of("a", info()) != hash_of("b", info())
    assert hash_of("a", info()) == hash_of("a", info(fingerprint="9" * 32))


@pytest.mark.parametrize("identify", [by_line, lambda item: None])
def test_chunks_are_numbered_in_their_document(identify: Callable[[Item], str | None]):
    spans = iter([Located(0, 0, 1, "whole"), Located(1, 2, 3, "whole")])
    rows = NewRows(info(chunking="1"), identify, lambda item: next(spans), {})
    found = list(rows.new([Item(1, "a"), Item(1, "b")]))
    doc = found[0].beside.doc
    assert [item.beside.id for item in found] == [f"{doc}#0", f"{doc}#1"]
    assert found[1].beside.doc == doc


def test_deletion_takes_any_id(tmp_path: Path):
    index = Index.create(tmp_path / "a", reader(ODD, ids=ODD), info())
    for gone in range(len(ODD)):
        delete(index, [ODD[gone]])
        assert index.table.to_arrow()["id"].to_pylist() == ODD[gone + 1 :]


def test_what_the_input_no_longer_has_is_stale(tmp_path: Path):
    index = Index.create(tmp_path / "a", reader(["a", "b", "c"], ids=["1", "2", "9"]), info())
    rows = NewRows(info(), by_line, located, {}, index)
    taken(rows, ["a", "b"])
    assert rows.stale(index, prune=False) == []
    assert rows.stale(index, prune=True) == ["9"]
