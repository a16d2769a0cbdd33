"""Rows are told apart by their ids and by what their vectors depend on; what is gone is found, and deleted by id."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.search.rows import info, reader

from afterword.jobs.rows import Item
from afterword.search.index import Index
from afterword.search.rows import Located, NewRows, delete, hash_of

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


def test_an_equal_text_with_other_kept_values_is_listed():
    rows = NewRows(info(), lambda item: None, located, {"n": "json"})
    found = list(rows.new(Item(line, "a", kept={"n": n}) for line, n in enumerate([1, 1, 2], 1)))
    told = "has the text of the row in line 1 and different kept values: --id NAME keeps both"
    assert [item.problem for item in found] == [None, told] and rows.counts == {"repeated": 1}


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


def chunked(texts: Sequence[str], **settings: Any) -> tuple[list[Item], NewRows]:
    """The rows of documents whose chunks are their words; all have one id."""
    items = [
        Item(line, word, beside=(number, text), kept={"n": 1})
        for line, text in enumerate(texts, 1)
        for number, word in enumerate(text.split())
    ]
    rows = NewRows(
        info(chunking="1", **settings), lambda item: "a", lambda item: Located(item.beside[0], 0, 1, item.beside[1]), {}
    )
    return list(rows.new(items)), rows


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("texts", [["one two three", "one two"], ["one two", "one two three"], ["one", "other two"]])
def test_documents_with_one_id_are_not_mixed(texts: list[str], late: bool):
    """Their first chunks may be equal, and the second document may have more of them, or fewer."""
    found, rows = chunked([*texts, texts[0]], late=late)
    first = texts[0].split()
    assert [item.text for item in found if item.problem is None] == first
    assert [item.problem for item in found if item.problem] == ["has the id 'a' of the row in line 1"]
    assert rows.counts == {"repeated": len(first)}  # the third row is the first one again


def test_chunked_texts_with_other_kept_values_are_told_how_to_keep_both():
    kept = [{"n": 1}, {"n": 2}]
    items = [Item(line, "a", kept=k, beside=None) for line, k in enumerate(kept, 1)]
    rows = NewRows(info(chunking="1"), lambda item: None, lambda item: Located(0, 0, 1, "a b"), {"n": "json"})
    told = "has the text of the row in line 1 and different kept values: --id NAME keeps both"
    assert [item.problem for item in rows.new(items)] == [None, told]
