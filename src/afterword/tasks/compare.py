"""Compare two encoders on the same tasks: differences, bootstrap intervals and a paired t-test."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError, MissingExtra
from .report import Row
from .results import Items, Result
from .scores import bootstrap, pearson, spearman

Column = NDArray[Any]
SAME = 1e-6  # largest difference between a score and the same score recomputed from its items


@dataclass(frozen=True)
class Difference:
    """The scores of two encoders on a task, in percent, and the interval of their difference.

    Attributes:
        task: name of the task.
        group: group of the task.
        first: score of the first encoder.
        second: score of the second encoder.
        interval: bootstrap interval of their difference over pairs or questions; NaN if there is none.
        note: why there is no interval.
    """

    task: str
    group: str
    first: float
    second: float
    interval: tuple[float, float]
    note: str = ""

    @property
    def value(self) -> float:
        """Second minus first."""
        return self.second - self.first


@dataclass(frozen=True)
class Comparison:
    """One encoder against another.

    Attributes:
        first: name of the first encoder.
        second: name of the second encoder.
        differences: one per task that both have results for.
        t: statistic of the paired t-test over tasks, with one degree of freedom fewer than tasks; NaN for fewer than
            two tasks.
        p: its two-sided p-value.
    """

    first: str
    second: str
    differences: tuple[Difference, ...]
    t: float
    p: float

    @property
    def mean(self) -> float:
        """The mean difference over tasks."""
        return float(np.mean([d.value for d in self.differences]))


def compare(first: Row, second: Row, draws: int = 1000, seed: int = 0, level: float = 0.95) -> Comparison:
    """Compare two encoders on the tasks that both have.

    The bootstrap is paired: both are scored on the same draws of pairs or questions, so that a pair that is hard for
    both does not widen the interval.

    Args:
        first: results of the first encoder, the baseline.
        second: results of the second encoder.
        draws: number of bootstrap draws; 0 = no intervals.
        seed: random seed of the draws.
        level: confidence level of the intervals.

    Raises:
        InputError: they have no task in common.
        MissingExtra: scipy is not installed.
    """
    common = [task for task in first.results if task in second.results]
    if not common:
        raise InputError(f"{first.name} and {second.name} have no task in common: evaluate both on the same --tasks")
    differences = tuple(_difference(first.results[t], second.results[t], draws, seed, level) for t in common)
    t, p = t_test([d.value for d in differences])
    return Comparison(first.name, second.name, differences, t, p)


def t_test(differences: list[float]) -> tuple[float, float]:
    """Student's t of paired differences and its two-sided p-value; NaN for fewer than two, or if all are equal.

    Raises:
        MissingExtra: scipy is not installed.

    >>> t, p = t_test([1.0, 2.0, 3.0])
    >>> round(t, 4), round(p, 4)
    (3.4641, 0.0742)
    """
    values = np.asarray(differences, np.float64)
    if len(values) < 2 or not np.isfinite(values).all() or np.ptp(values) == 0:
        return math.nan, math.nan
    try:
        from scipy.special import stdtr
    except ImportError:
        raise MissingExtra("scipy", "evaluate") from None
    t = float(values.mean() / (values.std(ddof=1) / math.sqrt(len(values))))
    return t, float(2 * stdtr(len(values) - 1, -abs(t)))


def _difference(a: Result, b: Result, draws: int, seed: int, level: float) -> Difference:
    interval, note = _interval(a, b, draws, seed, level)
    return Difference(a.task, a.group, 100 * a.main, 100 * b.main, interval, note)


def _interval(a: Result, b: Result, draws: int, seed: int, level: float) -> tuple[tuple[float, float], str]:
    nothing = (math.nan, math.nan)
    if not draws:
        return nothing, ""
    if a.revision != b.revision:
        return nothing, "not the same data"
    if a.about.get("options") != b.about.get("options"):
        return nothing, "not the same protocol"
    score, columns = _statistic(a), [_columns(a.items), _columns(b.items)]
    if score is None or None in (columns[0], columns[1]):
        return nothing, "no pairs or questions to draw from"
    (gold, mine), (_, theirs) = columns  # type: ignore[misc]
    if abs(score(gold, mine) - a.main) > SAME or abs(score(gold, theirs) - b.main) > SAME:
        return nothing, "its score is more than one over its pairs"

    def difference(gold: Column, mine: Column, theirs: Column) -> float:
        return 100 * (score(gold, theirs) - score(gold, mine))

    return bootstrap(difference, gold, mine, theirs, draws=draws, seed=seed, level=level), ""


def _statistic(result: Result) -> Callable[[Column, Column], float] | None:
    """The function from items to the main score; None if the items have none."""
    if "correct" in result.items:
        return lambda _, correct: float(np.mean(correct))
    if "similarity" in result.items:
        return pearson if "pearson" in result.metric else spearman
    return None


def _columns(items: Items) -> tuple[Column, Column] | None:
    if "correct" in items:
        return items["correct"], items["correct"]
    return (items["gold"], items["similarity"]) if "similarity" in items else None
