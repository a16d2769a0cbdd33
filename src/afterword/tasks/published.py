"""Scores from the tables of the papers, as data, with their sources, and our results in the same columns."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from statistics import fmean, stdev
from typing import Any

from ..errors import InputError
from ..spelling import did_you_mean
from .catalogue import CMTEB, OFFICIAL
from .pairs import DIFFERENT_DATA
from .report import Row
from .results import Result
from .scores import published_mean

CATEGORIES = ("Clas.", "Clus.", "P. Cls.", "Rera.", "Retr.", "STS")
"""The headings of ReBA's Table 2, in the order of `CMTEB`."""


@dataclass(frozen=True)
class PublishedRow:
    """One row of a table.

    Attributes:
        name: model and method, as printed.
        scores: one per column.
        deviations: standard deviations over runs, if the table has them.
        source: the work that the table cites for the row; "" = the paper itself.
        group: the heading above the row.
    """

    name: str
    scores: tuple[float, ...]
    deviations: tuple[float | None, ...] = ()
    source: str = ""
    group: str = ""


@dataclass(frozen=True)
class Published:
    """One table of a paper.

    Attributes:
        id: its name on the command line, as in "bellm-1".
        paper: name of the paper's method.
        reference: authors and title.
        table: number of the table.
        title: caption.
        scale: 100 for percent, 1 for fractions, as printed.
        columns: headings, as printed.
        tasks: our task for each column; None for an average, or a task that is missing here.
        metrics: our metric for each column; None if there is none.
        average: the tasks that the last column averages, if it is an average.
        rows: rows in the order of the table.
        note: remarks for the reader.
        ours: what our data of a task differ in from the table's, by task.
        averages: the tasks that a column averages, by heading; other columns without a task average `average`.
        metric_of: our metric for tasks that are only averaged, by task.
    """

    id: str
    paper: str
    reference: str
    table: str
    title: str
    scale: int
    columns: tuple[str, ...]
    tasks: tuple[str | None, ...]
    metrics: tuple[str | None, ...]
    average: tuple[str, ...]
    rows: tuple[PublishedRow, ...]
    note: str = ""
    ours: Mapping[str, str] = field(default_factory=dict)
    averages: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    metric_of: Mapping[str, str | None] = field(default_factory=dict)

    def scores_of(self, results: Mapping[str, Result]) -> tuple[float | None, ...]:
        """Our results in the columns, metrics and scale of this table; None for a result that is missing."""
        scores = self._by_task(on_their_data(results))
        return tuple(
            self._average(scores, among) if task is None else scores[task]
            for task, among in zip(self.tasks, self._among(), strict=True)
        )

    def _among(self) -> list[tuple[str, ...]]:
        """The tasks behind each column: its own, or those that it averages."""
        columns = zip(self.tasks, self.columns, strict=True)
        return [self.averages.get(head, self.average) if task is None else (task,) for task, head in columns]

    def deviations_of(self, results: Mapping[str, Result]) -> tuple[float | None, ...]:
        """The standard deviations over seeds of `scores_of`; None for a score that is missing or of one seed.

        In an average, a task with one seed counts as constant.
        """
        results = on_their_data(results)
        seeds = max(
            (tuple(r.scores) for t, r in results.items() if t in (*self.tasks, *self.average)), key=len, default=()
        )
        one = [self._by_task({t: _of_seed(r, seed) for t, r in results.items()}) for seed in seeds]
        several = {task for task, r in results.items() if len(r.scores) > 1}

        def deviation(among: tuple[str, ...]) -> float | None:
            values = [[s for t in among if (s := scores[t]) is not None] for scores in one]
            if not several & set(among) or any(len(v) < len(among) for v in values):
                return None
            return stdev(map(fmean, values))

        return tuple(map(deviation, self._among()))

    def notes_of(self, results: Mapping[str, Result]) -> tuple[tuple[str, ...], ...]:
        """What the reader must know of our result in each column: an average has the notes of its tasks."""
        results = on_their_data(results)
        by_task = {task: self._notes(results.get(task)) for task in (*self.tasks, *self.average) if task is not None}
        return tuple(
            tuple(f"{name}: {note}" for name in among for note in by_task[name]) if task is None else by_task[task]
            for task, among in zip(self.tasks, self._among(), strict=True)
        )

    def _notes(self, result: Result | None) -> tuple[str, ...]:
        if result is None:
            return ()
        return tuple(dict.fromkeys((*([self.ours[result.task]] if result.task in self.ours else []), *result.notes)))

    def _by_task(self, results: Mapping[str, Result]) -> dict[str, float | None]:
        metric = dict(zip(self.tasks, self.metrics, strict=True))
        known = {task: self.metric_of.get(task, metric.get(task, self.metrics[0])) for task in self.average}
        scores = {task: self._score(results.get(task), known[task]) for task in self.average}
        return scores | {t: self._score(results.get(t), m) for t, m in metric.items() if t is not None}

    def _score(self, result: Result | None, metric: str | None) -> float | None:
        value = None if result is None or metric is None else result.metric_named(metric)
        return None if value is None else self.scale * value

    def _average(self, by_task: Mapping[str, float | None], among: Sequence[str]) -> float | None:
        scores = [s for task in among if (s := by_task[task]) is not None]
        if not scores or len(scores) < len(among):
            return None
        return published_mean(scores) if self.scale == 100 else sum(scores) / len(scores)


def _of_seed(result: Result, seed: int) -> Result:
    """The result of one seed; of another one where there is none of it."""
    return replace(result, scores={0: result.scores.get(seed, result.scores[min(result.scores)])})


def on_their_data(results: Mapping[str, Result]) -> dict[str, Result]:
    """Results by the names of published columns: one on mteb's own data ("TNews.mteb") comes before a local one."""
    return {**results, **{name.removesuffix(OFFICIAL): r for name, r in results.items() if name.endswith(OFFICIAL)}}


@cache
def published() -> Mapping[str, Published]:
    """All tables, by id.

    >>> published()["ditto-6"].rows[7].name, published()["ditto-6"].rows[7].scores[-1]
    ('BERT first-last Ditto', 64.77)
    """
    raw = json.loads((files(__package__) / "published.json").read_text("utf-8"))
    tables = {table["id"]: _table(table) for table in raw}
    return {**tables, "reba-2": _by_category(tables["reba-2"], tables["reba-3"])}


def _by_category(averages: Published, whole: Published) -> Published:
    """Table 2 of ReBA, whose columns are averages over the columns of Table 3."""
    of_category = dict(zip(CATEGORIES, CMTEB.values(), strict=True))
    named = {head: tuple(of_category[head].split()) for head in averages.columns if head in of_category}
    metrics = dict(zip(whole.tasks, whole.metrics, strict=True))
    metric_of = {task: metric for task, metric in metrics.items() if task is not None}
    return replace(averages, average=tuple(metric_of), averages=named, metric_of=metric_of)


def chosen(ids: Sequence[str], tasks: Sequence[str]) -> list[Published]:
    """The tables with given ids.

    Args:
        ids: ids of tables; "all" = all tables that share a task with `tasks`.
        tasks: tasks that we have results for; without any, all tables are meant.

    Raises:
        InputError: there is no such table.
    """
    names = {task.removesuffix(OFFICIAL) for task in tasks}
    tables: dict[str, Published] = {}
    for name in ids:
        if name == "all":
            tables |= {key: t for key, t in published().items() if not tasks or {*t.tasks, *t.average} & names}
        elif name in published():
            tables[name] = published()[name]
        else:
            raise InputError(
                f"no published table {name!r}{did_you_mean(name, published())}: there are all, {', '.join(published())}"
            )
    return list(tables.values())


def _table(raw: dict[str, Any]) -> Published:
    rows = tuple(
        PublishedRow(
            r["name"], tuple(r["scores"]), tuple(r.get("deviations", ())), r.get("source", ""), r.get("group", "")
        )
        for r in raw.pop("rows")
    )
    metric, tasks = raw.pop("metric"), tuple(raw.pop("tasks"))
    metrics = tuple(metric) if isinstance(metric, list) else (metric,) * len(tasks)
    average = tuple(raw.pop("average", [t for t in tasks if t is not None]))
    return Published(
        **{**raw, "columns": tuple(raw["columns"])}, tasks=tasks, metrics=metrics, average=average, rows=rows
    )


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
    ends = (DIFFERENT_DATA, *table.ours.values())
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
