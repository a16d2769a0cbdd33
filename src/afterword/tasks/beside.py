"""Our results beside those of a paper: the lines of a published table, whose they are, and what differs in ours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from .published import OTHER_DATA, Published
from .report import Row

NEAREST = 3  # number of published rows that are shown for each of ours
HERE = "evaluated here"

Numbers = tuple[float | None, ...]


@dataclass(frozen=True)
class Line:
    """One line of a table of scores.

    Attributes:
        name: model and method.
        scores: one per column; None for a missing one.
        deviations: their standard deviations over runs, where they are known.
        group: the heading that it stands under.
        whose: who has evaluated it, as in "published, Gao et al. (2021)".
        notes: for each column, what the reader must know of its score; () for all = nothing.
        other: numbers of the columns whose score is of other data than the column's other scores.
    """

    name: str
    scores: Numbers
    deviations: Numbers
    group: str = ""
    whose: str = HERE
    notes: tuple[tuple[str, ...], ...] = ()
    other: frozenset[int] = frozenset()

    @property
    def ours(self) -> bool:
        """Whether it was evaluated here."""
        return self.whose == HERE

    def note(self, column: int) -> tuple[str, ...]:
        """The notes of one column."""
        return self.notes[column] if self.notes else ()


def lines(table: Published, rows: Sequence[Row]) -> list[Line]:
    """The lines of a published table: ours that have a score in it first, then the paper's."""
    ours = [line for line in (_line(table, row) for row in rows) if any(s is not None for s in line.scores)]
    theirs = [
        Line(
            row.name, row.scores, row.deviations or (None,) * len(row.scores), row.group,
            f"published, {row.source}" if row.source else "published",
        )
        for row in table.rows
    ]  # fmt: skip
    return ours + theirs


def _line(table: Published, row: Row) -> Line:
    scores = table.scores_of(row.results)
    notes = zip(table.notes_of(row.results), scores, strict=True)
    told = tuple(() if score is None else note for note, score in notes)
    ends = (OTHER_DATA, *table.ours.values())
    other = frozenset(k for k, note in enumerate(told) if any(text.endswith(ends) for text in note))
    return Line(row.name, scores, table.deviations_of(row.results), row.model, notes=told, other=other)


def near(table: Published, rows: Sequence[Row]) -> list[Published]:
    """The table with the rows that are nearest in score to each of ours; nothing if none of ours has a place in it."""
    kept: set[int] = set()
    for row in rows:
        distances = sorted((_distance(one.scores, table.scores_of(row.results)), i) for i, one in enumerate(table.rows))
        kept |= {i for distance, i in distances[:NEAREST] if distance < math.inf}
    if not kept:
        return []
    if len(kept) < len(table.rows):
        more = f"{len(kept)} of {len(table.rows)} rows, the nearest in score; --published {table.id} shows all."
        table = replace(table, note=f"{table.note} {more}".strip(), rows=tuple(table.rows[i] for i in sorted(kept)))
    return [table]


def _distance(theirs: Sequence[float], ours: Sequence[float | None]) -> float:
    differences = [abs(a - b) for a, b in zip(theirs, ours, strict=True) if b is not None and math.isfinite(b)]
    return sum(differences) / len(differences) if differences else math.inf
