"""Isotropy: what is measured is what the formulas give for the encoder's own vectors."""

import math

import numpy as np
import pytest
from scipy.spatial.distance import pdist

from afterword.errors import InputError
from afterword.papers import isotropy as geometry
from afterword.papers.isotropy import alignment, average_cosine, isotropy, positive_pairs, uniformity
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


X = np.random.default_rng(0).normal(1.0, 2.0, (23, 5))
Y = np.random.default_rng(1).normal(0.0, 1.0, (23, 5))


def unit(x: np.ndarray) -> np.ndarray:
    return x / np.linalg.norm(x, axis=1, keepdims=True)


@pytest.mark.parametrize("block", [1, 4, 22, 23, 1024])
def test_the_block_does_not_matter(block: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(geometry, "BLOCK", block)
    assert average_cosine(X) == pytest.approx(1 - pdist(X, "cosine").mean(), abs=1e-13)
    assert uniformity(X) == pytest.approx(np.log(np.exp(-2 * pdist(unit(X)) ** 2).mean()), abs=1e-12)
    assert uniformity(X, 0.5) == pytest.approx(np.log(np.exp(-0.5 * pdist(unit(X)) ** 2).mean()), abs=1e-12)
    distance = np.linalg.norm(unit(X) - unit(Y), axis=1)
    assert alignment(X, Y) == pytest.approx((distance**2).mean(), abs=1e-13)
    assert alignment(X, Y, 1) == pytest.approx(distance.mean(), abs=1e-13)


def test_float32_vectors_are_measured_in_float64():
    x = X.astype(np.float32)
    assert average_cosine(x) == average_cosine(x.astype(np.float64))
    assert uniformity(x) == uniformity(x.astype(np.float64))


def test_equal_vectors_are_one_cone_and_one_point():
    x = np.tile(X[:1], (7, 1))
    assert average_cosine(x) == pytest.approx(1, abs=1e-14)
    assert uniformity(x) == pytest.approx(0, abs=1e-13)
    assert alignment(x, 3 * x) == pytest.approx(0, abs=1e-14)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: average_cosine(X[:1]), r"\(1, 5\): give \(n, D\) with n of at least 2"),
        (lambda: uniformity(X[0]), r"\(5,\)"),
        (lambda: alignment(X, Y[:3]), "as many of either"),
        (lambda: average_cosine(np.vstack([X, np.zeros(5)])), "vector 23 has length 0"),
        (lambda: uniformity(np.vstack([X, np.full(5, np.nan)])), "vector 23 is not finite"),
        (lambda: alignment(X[:0], Y[:0]), "at least 1"),
    ],
)
def test_what_has_no_geometry_is_refused(call, words: str):
    with pytest.raises(InputError, match=words):
        call()
