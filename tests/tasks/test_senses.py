"""What tasks on word sense share."""

import numpy as np
import pytest

from afterword import Encoder
from afterword.tasks.senses import UNDECIDED, winner, word_rows

FAR = "many words " * 40 + "bank"


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return Encoder.load("afterword-mini", "classical", max_length=32)


def test_a_row_for_each_word_that_is_there(encoder: Encoder) -> None:
    texts = ["a bank by a bank", "no such thing", "the bank", FAR, "bank it"]
    rows = word_rows(encoder, texts, [("bank", 1), "bank", (4, 8), "bank", "bank"])
    assert rows[1] is None and rows[3] is None, "one lacks the word, one is cut before it"
    for i, word in ((0, (12, 16)), (2, "bank"), (4, "bank")):
        np.testing.assert_array_equal(rows[i], encoder.encode_words(texts[i], [word])[0])


def test_no_texts_and_none_with_the_word(encoder: Encoder) -> None:
    assert word_rows(encoder, [], []) == []
    assert word_rows(encoder, ["a", "b"], ["x", "x"]) == [None, None]


def test_the_winner_stands_alone() -> None:
    assert winner(np.array([-3.0, -1.0, -2.0])) == 1
    assert winner(np.array([1.0, 2.0, 2.0])) == UNDECIDED
    assert winner(np.array([1.0, 1.0 + 1e-15])) == UNDECIDED, "rounding decides nothing"
    assert winner(np.array([1.0, 1.0 + 1e-6])) == 1
    assert winner(np.array([1.0, np.nan])) == UNDECIDED and winner(np.array([1.0, np.inf])) == UNDECIDED
