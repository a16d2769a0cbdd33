"""Scores from the tables of the papers, as data, with their sources."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from ..errors import InputError
from ..spelling import did_you_mean
from .results import Result
from .scores import published_mean


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

    def scores_of(self, results: Mapping[str, Result]) -> tuple[float | None, ...]:
        """Our results in the columns, metrics and scale of this table; None for a result that is missing."""
        metric = dict(zip(self.tasks, self.metrics, strict=True))
        scores = {task: self._score(results.get(task), metric.get(task, self.metrics[0])) for task in self.average}
        scores |= {t: self._score(results.get(t), m) for t, m in metric.items() if t is not None}
        return tuple(self._average(scores) if task is None else scores[task] for task in self.tasks)

    def _score(self, result: Result | None, metric: str | None) -> float | None:
        value = None if result is None or metric is None else result.metric_named(metric)
        return None if value is None else self.scale * value

    def _average(self, by_task: Mapping[str, float | None]) -> float | None:
        scores = [s for task in self.average if (s := by_task[task]) is not None]
        if not scores or len(scores) < len(self.average):
            return None
        return published_mean(scores) if self.scale == 100 else sum(scores) / len(scores)


@cache
def published() -> Mapping[str, Published]:
    """All tables, by id.

    >>> published()["ditto-6"].rows[7].name, published()["ditto-6"].rows[7].scores[-1]
    ('BERT first-last Ditto', 64.77)
    """
    raw = json.loads((files(__package__) / "published.json").read_text("utf-8"))
    return {table["id"]: _table(table) for table in raw}


def chosen(ids: Sequence[str], tasks: Sequence[str]) -> list[Published]:
    """The tables with given ids.

    Args:
        ids: ids of tables; "all" = all tables that share a task with `tasks`.
        tasks: tasks that we have results for.

    Raises:
        InputError: there is no such table.
    """
    tables: dict[str, Published] = {}
    for name in ids:
        if name == "all":
            tables |= {key: t for key, t in published().items() if {*t.tasks, *t.average} & set(tasks)}
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
