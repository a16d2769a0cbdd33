"""Word counts from a corpus and from a list."""

from pathlib import Path

import pytest

from afterword.analysis.word_counts import most_frequent, read_counts
from afterword.errors import BadRow, DataError, MissingDataset


def written(tmp_path: Path, text: str) -> Path:
    (tmp_path / "words.txt").write_text(text, encoding="utf-8")
    return tmp_path / "words.txt"


def test_a_corpus_is_counted(tmp_path: Path):
    found = read_counts(written(tmp_path, "It rains; it rained — don't go.\n\nÉcole 2024 IT\n"))
    assert found == {"it": 3, "rains": 1, "rained": 1, "don't": 1, "go": 1, "école": 1, "2024": 1}


def test_a_list_of_counts_is_read(tmp_path: Path):
    assert read_counts(written(tmp_path, "the 10\nThe\t5\n\nit 7\n")) == {"the": 15, "it": 7}


def test_the_most_frequent_and_ties():
    assert most_frequent({"a": 1, "b": 3, "c": 3, "d": 1}, 3) == {"b", "c", "a"}


def test_what_is_wrong_is_named(tmp_path: Path):
    with pytest.raises(BadRow, match=r"words\.txt:3: 'it seven' is no word and its count"):
        read_counts(written(tmp_path, "the 10\n\nit seven\n"))
    with pytest.raises(DataError, match="holds no word"):
        read_counts(written(tmp_path, "...\n"))
    with pytest.raises(MissingDataset, match="does not exist"):
        read_counts(tmp_path / "none.txt")
    (tmp_path / "words.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match="cannot be read as UTF-8"):
        read_counts(tmp_path / "words.txt")
