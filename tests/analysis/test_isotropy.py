"""Isotropy: what is measured is what the formulas give for the encoder's own vectors."""

import math

import numpy as np
import pytest

from afterword.analysis.geometry import alignment, average_cosine, uniformity
from afterword.analysis.isotropy import isotropy, positive_pairs
from afterword.errors import InputError
from afterword.tasks.pairs import ScoredPairs

VECTORS = {"a": [1.0, 0.0], "b": [0.0, 2.0], "c": [3.0, 0.0], "d": [1.0, 1.0]}
PAIRS = ScoredPairs(("a", "b", "c"), ("d", "c", "a"), np.array([4.0, 4.2, 5.0]), ())


class Table:
    """An encoder whose vectors are written down."""

    def encode(self, texts, /, *, conditions=None):
        return np.array([VECTORS[text] for text in texts])

    def encode_words(self, texts, words, /):
        raise NotImplementedError


def test_each_number_is_that_of_its_formula():
    vectors = np.array(list(VECTORS.values()))
    found = isotropy(Table(), [*VECTORS, "a"], positive_pairs(PAIRS), name="table")
    assert (found.name, found.texts, found.positives) == ("table", 4, 2)  # equal texts once; 4.0 is not above 4
    assert found.average_cosine == average_cosine(vectors) and found.uniformity == uniformity(vectors)
    assert found.alignment == alignment(np.array([[0.0, 2], [3, 0]]), np.array([[3.0, 0], [1, 0]])) == 1


def test_without_pairs_there_is_no_alignment():
    found = isotropy(Table(), list(VECTORS))
    assert math.isnan(found.alignment) and found.to_json()["alignment"] is None and found.positives == 0


def test_too_little_is_refused():
    with pytest.raises(InputError, match="1 text has no cosine with another"):
        isotropy(Table(), ["a", "a"])
    with pytest.raises(InputError, match="no pair has a score above 5, the highest is 5"):
        positive_pairs(PAIRS, 5)
