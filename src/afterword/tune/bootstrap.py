"""How sure one may be of a rank correlation: all recipes in one sort, all draws of the bootstrap in one sum."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating[Any]]
Interval = tuple[float, float]

DRAWS, LEVEL = 1000, 0.95


def spearmans(columns: Array, gold: Array) -> Array:
    """Spearman's correlation of many lists of n numbers with one; as `scores.spearman`, one by one.

    Args:
        columns: (m, n).
        gold: (n,).

    Returns:
        (m,); NaN where a list is not finite, or differs by no more than its rounding.

    >>> spearmans(np.array([[1.0, 2, 3], [3, 1, 3], [1, 1, 1]]), np.array([10.0, 30, 20])).round(3).tolist()
    [0.5, -0.866, nan]
    """
    x, y = _ranks(columns), _ranks(gold[None])[0]
    x, y = x - x.mean(1, keepdims=True), y - y.mean()
    with np.errstate(invalid="ignore", divide="ignore"):
        found = (x @ y) / (np.linalg.norm(x, axis=1) * np.linalg.norm(y))
    return np.where(_constant(columns), np.nan, found.clip(-1, 1))


def settled(cosines: Array) -> Array:
    """Cosines to 20 bits behind the point (40 in float64): what is equal save for rounding is equal.

    Many pairs have one cosine where vectors are those of few tokens; their order is no finding.

    >>> settled(np.array([1.0, 1 - 1e-14])).tolist()
    [1.0, 1.0]
    """
    scale = cosines.dtype.type(2**20 if cosines.dtype == np.float32 else 2**40)
    return np.asarray(np.round(cosines * scale) / scale)


def _constant(columns: Array) -> NDArray[np.bool_]:
    """Which lists say nothing: float32 cosines of one and the same vector differ by some 1e-7."""
    with np.errstate(invalid="ignore"):
        spread = columns.max(1) - columns.min(1)
    return np.asarray(~(spread > 16 * np.finfo(columns.dtype).eps))


def _ranks(columns: Array) -> Array:
    """Ranks from 0 along the last axis (m, n); equal values share the mean of theirs."""
    order = np.argsort(columns, axis=1)
    ordered = np.take_along_axis(columns, order, 1)
    at = np.arange(columns.shape[1])
    new = np.ones(columns.shape, bool)
    new[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    first = np.maximum.accumulate(np.where(new, at, 0), 1)
    ends = np.ones(columns.shape, bool)
    ends[:, :-1] = new[:, 1:]
    last = np.minimum.accumulate(np.where(ends, at, at[-1])[:, ::-1], 1)[:, ::-1]
    ranks = np.empty(columns.shape)
    np.put_along_axis(ranks, order, (first + last) / 2, 1)
    return ranks


class Bootstrap:
    """Draws of n pairs with replacement, the same for every recipe, so that differences are paired.

    The intervals are those of `scores.bootstrap` with the same seed.

    Args:
        gold: scores of the pairs (n,).
        seed: of the draws.
    """

    def __init__(self, gold: Array, seed: int = 0) -> None:
        n = len(gold)
        drawn = np.random.default_rng(seed).integers(0, n, (DRAWS, n))
        rows = np.arange(DRAWS)[:, None] * n
        self.times = np.bincount((drawn + rows).ravel(), minlength=DRAWS * n).reshape(DRAWS, n).astype(float)
        self.gold = gold

    @cached_property
    def _gold(self) -> tuple[Array, Array]:
        return self._ranked(self.gold)

    def _ranked(self, values: Array) -> tuple[Array, Array]:
        """Ranks of all values in each draw, less their mean (draws, n), and their length there (draws,)."""
        found, code, _ = np.unique(values, return_inverse=True, return_counts=True)
        order = np.argsort(code, kind="stable")
        starts = np.searchsorted(code[order], np.arange(len(found)))
        counts = np.add.reduceat(self.times[:, order], starts, axis=1)
        middle = counts.cumsum(1) - (counts + len(values)) / 2  # a rank, less the mean rank n / 2
        ranks = middle[:, code]
        return ranks, np.sqrt((self.times * ranks**2).sum(1))

    def spearman(self, similarity: Array) -> Array:
        """The correlation with gold in each draw (draws,); NaN in a draw of equal values."""
        (x, length), (y, other) = self._ranked(similarity), self._gold
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray((self.times * x * y).sum(1) / (length * other))

    def interval(self, similarity: Array) -> Interval:
        """Of a recipe's correlation."""
        return _ends(self.spearman(similarity))

    def gain(self, similarity: Array, over: Array) -> Interval:
        """Of the difference between two recipes' correlations, by the same draws."""
        return _ends(self.spearman(similarity) - self.spearman(over))


def _ends(drawn: Array) -> Interval:
    found = drawn[~np.isnan(drawn)]
    if not len(found):
        return np.nan, np.nan
    low, high = np.quantile(found, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)
