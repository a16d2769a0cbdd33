"""Results as tables: a Markdown table per group of tasks, and CSV with a row per score."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path

from ..errors import DataError, MissingDataset, visible
from .catalogue import local_tasks
from .results import Result, read
from .scores import published_mean

AVERAGE = "Avg."


@dataclass(frozen=True)
class Row:
    """One encoder's results.

    Attributes:
        name: name of the encoder, as tables show it.
        results: results by task.
        model: name of its model.
    """

    name: str
    results: Mapping[str, Result]
    model: str = ""


@dataclass(frozen=True)
class ScoreTable:
    """Scores of a group of tasks in percent; the last column is the average, for rows without gaps.

    Attributes:
        title: name of the group.
        metric: name of the main score.
        columns: tasks, and the average.
        rows: for each encoder its name, scores, and standard deviations over seeds.
    """

    title: str
    metric: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[float | None, ...], tuple[float | None, ...]], ...]


def tables(rows: Sequence[Row]) -> list[ScoreTable]:
    """One table per group; groups and tasks are in the order of the results."""
    groups: dict[str, dict[str, Result]] = {}
    for row in rows:
        for task, result in row.results.items():
            groups.setdefault(result.group, {}).setdefault(task, result)
    return [_table(group, members, rows) for group, members in groups.items()]


def _table(group: str, members: Mapping[str, Result], rows: Sequence[Row]) -> ScoreTable:
    lines = []
    for row in rows:
        results = [row.results.get(task) for task in members]
        if any(results):
            scores = [None if r is None else 100 * r.main for r in results]
            deviations = [None if r is None or r.deviation is None else 100 * r.deviation for r in results]
            if len(members) > 1:
                scores.append(_average(scores))
                deviations.append(_spread([r for r in results if r is not None]) if None not in scores else None)
            lines.append((row.name, tuple(scores), tuple(deviations)))
    columns = (*members, *([AVERAGE] if len(members) > 1 else []))
    return ScoreTable(group, " or ".join(dict.fromkeys(r.metric for r in members.values())), columns, tuple(lines))


def _average(scores: Sequence[float | None]) -> float | None:
    """The mean, rounded as in published tables; None if a score is missing, NaN if one is undefined."""
    present = [s for s in scores if s is not None]
    if len(present) < len(scores):
        return None
    return math.nan if any(math.isnan(s) for s in present) else published_mean(present)


def _spread(results: Sequence[Result]) -> float | None:
    """The standard deviation over seeds of the average over tasks; a task without seeds counts as constant."""
    seeds = max((tuple(r.scores) for r in results), key=len)
    if len(seeds) < 2:
        return None
    averages = [sum(r.scores.get(s, r.scores[min(r.scores)]).main for r in results) / len(results) for s in seeds]
    mean = sum(averages) / len(averages)
    return 100 * math.sqrt(sum((a - mean) ** 2 for a in averages) / (len(averages) - 1))


def markdown(score_tables: Sequence[ScoreTable]) -> str:
    """Tables as Markdown; a missing score is a dash, an undefined one is nan."""
    return "\n\n".join(_markdown(table) for table in score_tables) + "\n"


def _markdown(table: ScoreTable) -> str:
    cells = [[table.title, *table.columns]]
    for name, scores, deviations in table.rows:
        cells.append([name, *(_cell(s, d) for s, d in zip(scores, deviations, strict=True))])
    return f"{table.title}, {table.metric}, x 100\n\n{aligned(cells)}"


def aligned(cells: Sequence[Sequence[str]]) -> str:
    """A Markdown table with cells padded to equal width; the first row is the header.

    >>> print(aligned([["", "a"], ["row", "1.00"]]))
    |     |    a |
    |-----|-----:|
    | row | 1.00 |
    """
    cells = [[_plain(cell) for cell in row] for row in cells]
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    padded = [[c.rjust(w) if i else c.ljust(w) for i, (c, w) in enumerate(zip(r, widths, strict=True))] for r in cells]
    rule = "|".join("-" * (w + 1) + (":" if i else "-") for i, w in enumerate(widths))
    lines = [f"| {' | '.join(row)} |" for row in padded]
    return "\n".join([lines[0], f"|{rule}|", *lines[1:]])


def _plain(cell: str) -> str:
    """A cell on one line, without what Markdown or a terminal would take for a command."""
    return visible(" ".join(cell.split())).replace("|", "\\|").replace("<", "&lt;")


def _cell(score: float | None, deviation: float | None) -> str:
    if score is None:
        return "-"
    return f"{score:.2f}" + (f" ± {deviation:.2f}" if deviation is not None else "")


def as_csv(rows: Sequence[Row]) -> str:
    """Results as CSV, with one line per encoder and task."""
    out = StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["model", "encoder", "group", "task", "metric", "score", "deviation", "seeds", "notes"])
    for row in rows:
        for task, r in row.results.items():
            deviation = "" if r.deviation is None else repr(r.deviation)
            writer.writerow([
                row.model, row.name, r.group, task, r.metric, repr(r.main), deviation,
                len(r.scores), "; ".join(r.notes),
            ])  # fmt: skip
    return out.getvalue()


def read_results(folder: Path) -> list[Row]:
    """Read the results of all encoders below a folder, sorted by path.

    Raises:
        MissingDataset: there is no such folder.
        DataError: it holds no results, or a JSON file that is not a complete result.
    """
    if not folder.is_dir():
        raise MissingDataset(f"{folder} does not exist: give a folder that `afterword evaluate` wrote")
    inside = sorted({path.parent for path in folder.rglob("*.json")})
    if not inside:
        raise DataError(f"{folder} holds no results: give a folder that `afterword evaluate` wrote")
    return [_row([read(path) for path in sorted(at.glob("*.json"))]) for at in inside]


def _row(results: Sequence[Result]) -> Row:
    order = {task.name: i for i, task in enumerate(local_tasks())}
    results = sorted(results, key=lambda r: order.get(r.task, len(order)))
    about = results[0].about
    return Row(str(about["name"]), {r.task: r for r in results}, str(about.get("model", "")))


def named(rows: Sequence[Row]) -> list[Row]:
    """Rows with unambiguous names: if there are several models, each name begins with its model."""
    several = len({row.model for row in rows}) > 1
    return [replace(row, name=f"{row.model} {row.name}") if several else row for row in rows]
