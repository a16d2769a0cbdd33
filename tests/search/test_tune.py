"""Searches by words need no dictionary; a small index has no vector index."""

from pathlib import Path

import pytest
from tests.search.rows import info, reader

from afterword.errors import DataError
from afterword.search.index import VECTOR, Index
from afterword.search.tune import has_index, index_texts, index_vectors

TEXTS = ["the bank of the river", "银行昨天提高了利率", "running water", "café society"]


@pytest.fixture
def index(tmp_path: Path) -> Index:
    return Index.create(tmp_path / "a", reader(TEXTS), info(language="English"))


def words(index: Index, query: str) -> list[str]:
    return [row["id"] for row in index.table.search(query, query_type="fts").limit(9).to_list()]


def test_words_are_found_in_any_script(index: Index):
    index_texts(index)
    index_texts(index)
    assert words(index, "银行") == ["1"]
    assert words(index, "BANK") == ["0"]
    assert words(index, "runs") == ["2"]  # by its stem
    assert words(index, "cafe") == ["3"]
    assert words(index, "the") != []  # rows with stop words alone are found too


def test_without_a_language_words_are_taken_as_they_are(tmp_path: Path):
    index = Index.create(tmp_path / "a", reader(TEXTS), info(language="none"))
    index_texts(index)
    assert (words(index, "the"), words(index, "runs"), words(index, "利率")) == (["0"], [], ["1"])


def test_an_unknown_language_is_named(tmp_path: Path):
    index = Index.create(tmp_path / "a", reader(TEXTS), info(language="Klingon"))
    with pytest.raises(DataError, match="no text index for the language Klingon"):
        index_texts(index)


def test_a_small_index_is_exact(index: Index):
    index_vectors(index)
    assert not has_index(index, VECTOR)


def test_every_word_of_a_row_is_found(tmp_path: Path):
    texts = ["a cat sat", "the dog", "the red fox runs", "猫坐在垫子上"]
    index = Index.create(tmp_path / "a", reader(texts), info(language="English"))
    index_texts(index)
    for row, text in enumerate(texts[:3]):
        for word in text.split():
            assert f"{row}" in words(index, word), word
    assert words(index, "猫") == ["3"]
