"""What a table of scores says, in a sentence: the title of its figure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Series:
    """One encoder's scores.

    Attributes:
        name: name beside its marks.
        scores: one per column; None for a missing one.
        deviations: their standard deviations, where they are known; () = of none.
        published: whether they are a paper's.
        group: the heading that it stands under.
        marked: numbers of the columns whose score is of other data than the column's other scores.
    """

    name: str
    scores: Sequence[float | None]
    deviations: Sequence[float | None] = ()
    published: bool = False
    group: str = ""
    marked: frozenset[int] = frozenset()

    def score(self, column: int) -> float:
        """The score in a column; NaN if it is missing or undefined."""
        score = self.scores[column]
        return math.nan if score is None else score

    def deviation(self, column: int) -> float:
        """Its standard deviation; 0 if it is not known."""
        return (self.deviations[column] if self.deviations else None) or 0.0


def finding(columns: Sequence[str], series: Sequence[Series], digits: int = 2) -> str:
    """Who leads and by how much, in the average or in the only column; without those, in how many columns.

    A score that is marked, since it is of other data, has no place among the others.

    Args:
        columns: names of the tasks; the last may be an average.
        series: the scores.
        digits: decimals of the scores.

    >>> finding(["STSB", "Avg."], [Series("a", (70.0, 71.0)), Series("b", (72.0, 73.5))])
    'b leads by 2.50 in Avg.: 73.50, a 71.00'
    """
    last = len(columns) - 1
    if len(columns) > 1 and not columns[last].casefold().startswith(("avg", "total av")):
        return _wins(columns, series, digits)
    ranked = placed(last, series)
    if len(ranked) == 1 == len(series):
        return f"{ranked[0].name}: {ranked[0].score(last):.{digits}f} in {columns[last]}"
    if len(ranked) < 2:
        return _wins(columns, series, digits)
    names = dict(zip(map(id, series), _names(series), strict=True))
    first, second = ranked[:2]
    lead = round(first.score(last), digits) - round(second.score(last), digits)
    a, b = (f"{one.score(last):.{digits}f}" for one in (first, second))
    if a == b:
        told = f"{names[id(first)]} and {names[id(second)]} are level in {columns[last]}: {a}"
    else:
        told = f"{names[id(first)]} leads by {lead:.{digits}f} in {columns[last]}: {a}, {names[id(second)]} {b}"
        told += ", within one standard deviation" if lead <= max(first.deviation(last), second.deviation(last)) else ""
    ours = next((one for one in ranked if not one.published), None)
    if ours is not None and first.published:
        told += f"; evaluated here: {names[id(ours)]}, place {ranked.index(ours) + 1} of {len(ranked)}"
    return told


def placed(column: int, series: Sequence[Series]) -> list[Series]:
    """The series that may be ranked in a column, the best first."""
    able = [one for one in series if math.isfinite(one.score(column)) and column not in one.marked]
    return sorted(able, key=lambda one: -one.score(column))


def best(column: int, series: Sequence[Series], digits: int = 2) -> list[Series]:
    """The first of a column, and those whose score is printed as the same number."""
    ranked = placed(column, series)
    return [one for one in ranked if round(one.score(column), digits) == round(ranked[0].score(column), digits)]


def _names(series: Sequence[Series]) -> list[str]:
    """Names that differ: with the group, if two are the same without it."""
    names = [one.name for one in series]
    return names if len(set(names)) == len(names) else [f"{one.group} {one.name}" for one in series]


def _wins(columns: Sequence[str], series: Sequence[Series], digits: int) -> str:
    """Who is first in the most columns in which there are two or more to compare."""
    names = _names(series)
    firsts = [best(k, series, digits) for k in range(len(columns)) if len(placed(k, series)) > 1]
    if not firsts:
        every = f"{len(columns)} tasks" if len(columns) > 1 else columns[0]
        return f"{names[0] if len(names) == 1 else f'{len(names)} encoders'} on {every}"
    won = [[first for first in firsts if any(one is other for other in first)] for one in series]
    most = max(map(len, won))
    those = {name: mine for name, mine in zip(names, won, strict=True) if len(mine) == most}
    level = " or level" if any(len(first) > 1 for mine in those.values() for first in mine) else ""
    if len(those) > 2:
        return (
            f"no encoder leads: {len(those)} of {len(names)} are first{level} in {most} of {len(firsts)} columns each"
        )
    leads = "is first or level" if level else "leads"
    each = "are each first or level" if level else "each lead"
    return f"{' and '.join(those)} {leads if len(those) == 1 else each} in {most} of {len(firsts)} columns"
