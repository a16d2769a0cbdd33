"""Searches by words need no dictionary, those by vectors are exact or measured, and recall is raised until it holds."""

from pathlib import Path

import numpy as np
import pytest
from tests.index.rows import info, reader

from afterword.errors import DataError
from afterword.index.index import VECTOR, Index
from afterword.index.tune import half_texts, has_index, index_texts, index_vectors, measure, optimize

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
    measured = measure(index, np.zeros((0, 4), np.float32), 0.95)
    assert (measured.recall, measured.nprobes, measured.refine, measured.rows) == (1.0, None, None, 4)


def test_recall_is_raised_until_it_holds(tmp_path: Path):
    made = info(dimension=32, probes=np.zeros((8, 32), np.float32))
    index = Index.create(tmp_path / "a", reader([f"text {i}" for i in range(4000)], made), made)
    index_vectors(index, "sq")
    optimize(index)
    assert has_index(index, VECTOR)
    queries = np.random.default_rng(1).standard_normal((20, 32)).astype(np.float32)
    rows = index.table.to_arrow()[VECTOR].combine_chunks().flatten().to_numpy().reshape(-1, 32)[:3]
    found = measure(index, np.concatenate([queries, rows]), 0.95)
    assert found.recall >= 0.95 and found.refine == 10 and found.queries == 20  # the vectors of rows are left out
    assert measure(index, rows, 0.95, held_out=False).queries == 3
    index_vectors(index, exact=True)
    assert not has_index(index, VECTOR)


def test_queries_are_halves_of_texts(index: Index):
    assert sorted(half_texts(index, 9)) == sorted(["the bank", "银行昨天", "runnin", "café s"])
    assert len(half_texts(index, 2)) == 2


def test_every_word_of_a_row_is_found(tmp_path: Path):
    texts = ["a cat sat", "the dog", "the red fox runs", "猫坐在垫子上"]
    index = Index.create(tmp_path / "a", reader(texts), info(language="English"))
    index_texts(index)
    for row, text in enumerate(texts[:3]):
        for word in text.split():
            assert f"{row}" in words(index, word), word
    assert words(index, "猫") == ["3"]
