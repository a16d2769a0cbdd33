"""Results as tables: a Markdown table per group of tasks, and CSV with a row per score."""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path

from ..errors import DataError, MissingDataset, one_line
from .catalogue import groups_of_tasks
from .results import Result, read
from .scores import published_mean

Cells = Sequence[Sequence[str]]

AVERAGE = "Avg."
SUBMISSION = ".submission.json"
"""The end of the name of a file that lies beside the results, to be sent to a task's authors."""


@dataclass(frozen=True)
class Row:
    """One encoder's results.

    Attributes:
        name: name of the encoder, as tables show it.
        results: results by task.
        model: name of its model.
        folder: the folder of its results, relative to the one that was read.
    """

    name: str
    results: Mapping[str, Result]
    model: str = ""
    folder: str = ""


@dataclass(frozen=True)
class ScoreTable:
    """Scores of a group of tasks in percent; the last column is the average, for rows without gaps.

    Attributes:
        title: name of the group.
        metric: name of the main score.
        columns: tasks, and the average if there is one.
        rows: for each encoder its name, scores, and standard deviations over seeds.
        notes: remarks on the tasks, in the order of the columns.
    """

    title: str
    metric: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[float | None, ...], tuple[float | None, ...]], ...]
    notes: tuple[str, ...] = ()


def tables(rows: Sequence[Row]) -> list[ScoreTable]:
    """One table per group; groups and tasks are in the order of the results."""
    groups: dict[str, dict[str, Result]] = {}
    for row in rows:
        for task, result in row.results.items():
            groups.setdefault(result.group, {}).setdefault(task, result)
    return [_table(group, members, rows) for group, members in groups.items()]


def _table(group: str, members: Mapping[str, Result], rows: Sequence[Row]) -> ScoreTable:
    lines, shown = [], [row for row in rows if any(task in row.results for task in members)]
    why = _no_average(members)
    averaged = len(members) > 1 and not why
    for row in shown:
        results = [row.results.get(task) for task in members]
        scores = [None if r is None else 100 * r.main for r in results]
        deviations = [None if r is None or r.deviation is None else 100 * r.deviation for r in results]
        if averaged:
            scores.append(_average(scores))
            deviations.append(None if scores[-1] is None else _spread([r for r in results if r is not None]))
        lines.append((row.name, tuple(scores), tuple(deviations)))
    columns = (*members, *([AVERAGE] if averaged else []))
    metric = " or ".join(dict.fromkeys(r.metric for r in members.values()))
    notes = [why] if why else _undefined(members, lines) if averaged else []
    notes += [note for task in members for note in _notes(task, shown)]
    return ScoreTable(group, metric, columns, tuple(lines), tuple(notes))


def _no_average(members: Mapping[str, Result]) -> str:
    """Why these tasks have no average; "" if they have one."""
    metrics = dict.fromkeys(r.metric for r in members.values())
    if len(metrics) > 1:
        return f"no average: the metrics are {' and '.join(metrics)}"
    names = [task.partition(":")[0] for task in members]
    twice = next((name for name in names if names.count(name) > 1), None)
    return f"no average: {twice} appears more than once" if twice else ""


def _undefined(members: Iterable[str], lines: Sequence[tuple[str, tuple[float | None, ...], object]]) -> list[str]:
    """Which rows have no average because a score is NaN."""
    bad = {task: [name for name, at, _ in lines if math.isnan(at[i] or 0)] for i, task in enumerate(members)}
    return [
        f"no average{'' if len(names) == len(lines) else ' of ' + ', '.join(names)}: {task} is undefined"
        for task, names in bad.items()
        if names
    ]


def _notes(task: str, rows: Sequence[Row]) -> list[str]:
    """Remarks on a task: those of all its rows, those of some, and whether the rows are of the same data."""
    found = {row.name: row.results[task] for row in rows if task in row.results}
    notes = []
    for note in dict.fromkeys(note for r in found.values() for note in r.notes):
        those = [name for name, r in found.items() if note in r.notes]
        notes.append(f"{task}: {note}" if len(those) == len(found) else f"{task}, {', '.join(those)}: {note}")
    if len({r.revision for r in found.values()}) > 1:
        notes.append(f"{task}: the rows are of different data, and cannot be compared")
    return notes


def _average(scores: Sequence[float | None]) -> float | None:
    """The mean, rounded as in published tables; None if a score is missing or NaN."""
    present = [s for s in scores if s is not None and not math.isnan(s)]
    return published_mean(present) if len(present) == len(scores) else None


def _spread(results: Sequence[Result]) -> float | None:
    """The standard deviation over seeds of the average over tasks; a task without seeds counts as constant."""
    seeds = max((tuple(r.scores) for r in results), key=len)
    if len(seeds) < 2:
        return None
    averages = [sum(r.scores.get(s, r.scores[min(r.scores)]).main for r in results) / len(results) for s in seeds]
    mean = sum(averages) / len(averages)
    return 100 * math.sqrt(sum((a - mean) ** 2 for a in averages) / (len(averages) - 1))


def markdown(score_tables: Sequence[ScoreTable], lay: Callable[[Cells], str] | None = None) -> str:
    """Tables as Markdown; a missing score is a dash, an undefined one is nan.

    Args:
        score_tables: the tables.
        lay: makes a table of cells, in place of `aligned`.
    """
    return "\n\n".join(_markdown(table, lay or aligned) for table in score_tables) + "\n"


def _markdown(table: ScoreTable, lay: Callable[[Cells], str]) -> str:
    cells = [[table.title, *table.columns]]
    for name, scores, deviations in table.rows:
        cells.append([name, *(_cell(s, d) for s, d in zip(scores, deviations, strict=True))])
    told = "".join(f"\n- {_plain(note)}" for note in table.notes)
    return f"{_plain(table.title)}, {_plain(table.metric)}, x 100\n\n{lay(cells)}" + (f"\n{told}" if told else "")


def aligned(cells: Cells) -> str:
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
    """A cell on one line, its bars escaped."""
    return one_line(cell).replace("|", "\\|")


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
            texts = [one_line(text) for text in (row.model, row.name, r.group, task, r.metric)]
            writer.writerow([*texts, repr(r.main), deviation, len(r.scores), one_line("; ".join(r.notes))])
    return out.getvalue()


def read_results(folder: Path, damaged: Callable[[DataError], object] | None = None) -> list[Row]:
    """Read the results of all encoders below a folder, sorted by path.

    Args:
        folder: the folder.
        damaged: called with the error of a file that is not a complete result, which is then skipped; None = raise it.

    Raises:
        MissingDataset: there is no such folder.
        DataError: it holds no results, or a JSON file that is not a complete result.
    """
    if not folder.is_dir():
        raise MissingDataset(f"{folder} does not exist: give a folder that `afterword evaluate` wrote")
    inside: dict[Path, list[Result]] = {}
    paths = [path for path in sorted(folder.rglob("*.json")) if not path.name.endswith(SUBMISSION)]
    for path in paths:
        try:
            inside.setdefault(path.parent, []).append(read(path))
        except DataError as e:
            if damaged is None:
                raise
            damaged(e)
    if not paths:
        raise DataError(f"{folder} holds no results: give a folder that `afterword evaluate` wrote")
    rows = [_row(str(at.relative_to(folder)), found) for at, found in inside.items()]
    counts = Counter((row.model, row.name) for row in rows)
    return [replace(r, name=f"{r.folder}: {r.name}") if counts[r.model, r.name] > 1 else r for r in rows]


def _row(folder: str, found: Sequence[Result]) -> Row:
    """The results of a folder in the order of the tasks."""
    order = {task: i for i, task in enumerate(groups_of_tasks())}
    results = sorted(found, key=lambda r: order.get(r.task, len(order)))
    about = results[0].about
    return Row(str(about.get("name", folder)), {r.task: r for r in results}, str(about.get("model", "")), folder)


def named(rows: Sequence[Row]) -> list[Row]:
    """Rows with unambiguous names: if there are several models, each name begins with its model."""
    several = len({row.model for row in rows}) > 1
    return [replace(row, name=f"{row.model} {row.name}") if several else row for row in rows]
