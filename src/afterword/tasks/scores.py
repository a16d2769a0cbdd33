"""How well one list of numbers follows another: correlations, and how sure one may be of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError

Array = NDArray[np.floating[Any]]
Numbers = Sequence[float] | NDArray[Any]


def pearson(a: Numbers, b: Numbers) -> float:
    """Pearson's correlation of two lists of n numbers; NaN where one of them is constant or not finite.

    Raises:
        InputError: lengths that differ, or fewer than two pairs.

    >>> pearson([1, 2, 3], [2, 4, 6])
    1.0
    """
    x, y = _pairs(a, b)
    if not (np.isfinite(x).all() and np.isfinite(y).all()) or np.ptp(x) == 0 or np.ptp(y) == 0:
        return math.nan
    x, y = x - x.mean(), y - y.mean()
    return float(np.clip((x / np.linalg.norm(x)) @ (y / np.linalg.norm(y)), -1, 1))


def spearman(a: Numbers, b: Numbers) -> float:
    """Spearman's rank correlation, ties sharing their mean rank; NaN where one list is constant or not finite.

    Raises:
        InputError: lengths that differ, or fewer than two pairs.

    >>> spearman([1, 2, 3], [10, 30, 20])
    0.5
    """
    x, y = _pairs(a, b)
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        return math.nan
    return pearson(ranks(x), ranks(y))


def ranks(values: Numbers) -> Array:
    """Ranks from 1 (n,); equal values share the mean of theirs.

    >>> ranks([3, 1, 3]).tolist()
    [2.5, 1.0, 2.5]
    """
    _, inverse, counts = np.unique(np.asarray(values, np.float64), return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return np.asarray((ends - (counts - 1) / 2)[inverse])


def cosines(a: Array, b: Array) -> Array:
    """The cosine of each row of ``a`` (n, D) with the same row of ``b``, in float64 (n,); 0 where one is zero."""
    x, y = np.asarray(a, np.float64), np.asarray(b, np.float64)
    lengths = np.linalg.norm(x, axis=1) * np.linalg.norm(y, axis=1)
    return np.asarray((x * y).sum(1) / np.where(lengths > 0, lengths, 1))


def bootstrap(
    statistic: Callable[..., float],
    *columns: Numbers,
    draws: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> tuple[float, float]:
    """A percentile bootstrap interval over rows that are drawn with replacement, the same of every column.

    Args:
        statistic: of as many columns, to a number; draws that give NaN are left out.
        columns: n values each.
        draws: how often.
        level: of confidence, between 0 and 1.
        seed: of the draws.

    Returns:
        The interval's two ends; NaN where every draw was undefined.

    >>> low, high = bootstrap(lambda x: float(np.mean(x)), [0.0, 1.0] * 50)
    >>> low < 0.5 < high
    True
    """
    random = np.random.default_rng(seed)
    arrays = [np.asarray(c) for c in columns]
    n = len(arrays[0])
    made = [statistic(*(c[chosen] for c in arrays)) for chosen in random.integers(0, n, (draws, n))]
    found = [m for m in made if not math.isnan(m)]
    if not found:
        return math.nan, math.nan
    low, high = np.quantile(found, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def published_mean(scores: Sequence[float]) -> float:
    """The average as the papers' tables have it: of scores that were rounded to two decimals, rounded again.

    Args:
        scores: in percent.

    >>> published_mean([72.374, 80.596])
    76.48
    """
    return round(sum(round(s, 2) for s in scores) / len(scores), 2) if scores else math.nan


def _pairs(a: Numbers, b: Numbers) -> tuple[Array, Array]:
    x, y = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if x.shape != y.shape or x.ndim != 1:
        raise InputError(
            f"scores of the shapes {x.shape} and {y.shape} cannot be compared: give two lists of one length"
        )
    if len(x) < 2:
        raise InputError(f"{len(x)} pairs have no correlation: give at least 2")
    return x, y
