"""The rows of the papers' own tables, as data: what they report, and where they have it from."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from ..errors import InputError
from .results import Result
from .scores import published_mean


@dataclass(frozen=True)
class PublishedRow:
    """One row of a table.

    Attributes:
        name: of the model and method.
        scores: by column.
        deviations: over runs, where the table has them.
        source: whose figures the table says they are; "" = the paper's own.
        group: under which heading it stands.
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
        id: what it is asked for by, as in "bellm-1".
        paper: its method's name.
        reference: authors and title.
        table: its number.
        title: what it shows.
        scale: 100 for percent, 1 for fractions, as printed.
        columns: as printed.
        tasks: our task for each column; None for an average, or one that there is not.
        metrics: our metric for each column; None where there is none.
        average: the tasks behind the last column, where that is an average of tasks.
        rows: in the table's order.
        note: what a reader must know.
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
        """What results of ours would have in this table's columns, by its metrics and on its scale."""
        metric = dict(zip(self.tasks, self.metrics, strict=True))
        found = {task: self._score(results.get(task), metric.get(task, self.metrics[0])) for task in self.average}
        found |= {t: self._score(results.get(t), m) for t, m in metric.items() if t is not None}
        return tuple(self._average(found) if task is None else found[task] for task in self.tasks)

    def _score(self, result: Result | None, metric: str | None) -> float | None:
        value = None if result is None or metric is None else result.metric_named(metric)
        return None if value is None else self.scale * value

    def _average(self, found: Mapping[str, float | None]) -> float | None:
        scores = [s for task in self.average if (s := found[task]) is not None]
        if not scores or len(scores) < len(self.average):
            return None
        return published_mean(scores) if self.scale == 100 else sum(scores) / len(scores)


@cache
def published() -> Mapping[str, Published]:
    """Every table, by its id.

    >>> published()["ditto-6"].rows[7].name, published()["ditto-6"].rows[7].scores[-1]
    ('BERT first-last Ditto', 64.77)
    """
    raw = json.loads((files(__package__) / "published.json").read_text("utf-8"))
    return {table["id"]: _table(table) for table in raw}


def chosen(ids: Sequence[str], tasks: Sequence[str]) -> list[Published]:
    """The tables that are meant.

    Args:
        ids: of tables; "all" stands for those that share a task with ours.
        tasks: ours.

    Raises:
        InputError: there is no such table.
    """
    found: dict[str, Published] = {}
    for one in ids:
        if one == "all":
            found |= {key: t for key, t in published().items() if {*t.tasks, *t.average} & set(tasks)}
        elif one in published():
            found[one] = published()[one]
        else:
            raise InputError(f"no published table {one!r}: there are all, {', '.join(published())}")
    return list(found.values())


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
