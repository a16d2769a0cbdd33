"""The files that ``afterword compare`` writes: all numbers as CSV, and a figure for every table."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import DataError
from .console import say
from .drawing import Draw, draw_plot

if TYPE_CHECKING:
    from ..tasks.compare import Comparison
    from ..tasks.published import Published
    from ..tasks.report import Row, ScoreTable

COLUMNS = ("kind", "name", "against", "table", "task", "metric", "value", "low", "high", "deviation", "source", "notes")
BARS = ("accuracy", "strict_accuracy")  # a score of 0 is nothing right


def check_csv(path: Path) -> None:
    """Refuse a .csv file that cannot be written, before anything is computed.

    Raises:
        DataError: it is a folder, lies in none, or is a file of results.
    """
    from ..files.atomic import check_target

    if path.suffix == ".json":
        raise DataError(f"{path} may be a result of `afterword evaluate`: give another name, as in scores.csv")
    check_target(path)


def write(path: Path, text: str) -> None:
    """Write a file whole, or not at all."""
    from ..files.atomic import atomic_file

    with atomic_file(path) as file:
        file.write(text.encode())


def as_csv(rows: Sequence[Row], comparisons: Sequence[Comparison], theirs: Sequence[Published]) -> str:
    """All numbers as CSV, one per line: scores from here, their differences and tests, and published scores."""
    from ..tasks.report import csv_text

    out = StringIO()
    writer = csv.DictWriter(out, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    for line in (*_evaluated(rows), *_compared(comparisons), *_published(theirs)):
        writer.writerow({key: csv_text(value) if isinstance(value, str) else value for key, value in line.items()})
    return out.getvalue()


def _evaluated(rows: Sequence[Row]) -> Iterator[dict[str, object]]:
    for row in rows:
        for r in row.results.values():
            deviation = "" if r.deviation is None else 100 * r.deviation
            yield {
                "kind": "evaluated", "name": row.name, "table": r.group, "task": r.task, "metric": r.metric,
                "value": 100 * r.main, "deviation": deviation, "notes": "; ".join(r.notes),
            }  # fmt: skip


def _compared(comparisons: Sequence[Comparison]) -> Iterator[dict[str, object]]:
    for c in comparisons:
        names = {"name": c.second, "against": c.first}
        for d in c.differences:
            low, high = d.interval
            yield {
                "kind": "difference", **names, "table": d.kind.group, "task": d.task, "metric": d.kind.metric,
                "value": d.value, "low": low, "high": high, "notes": d.note,
            }  # fmt: skip
        for t in c.tests:
            yield {
                "kind": "mean difference", **names, "table": t.kind.group, "task": " ".join(t.tasks),
                "metric": t.kind.metric, "value": t.mean, "notes": f"paired t-test: t={t.t} p={t.p}",
            }  # fmt: skip


def _published(tables: Sequence[Published]) -> Iterator[dict[str, object]]:
    for table in tables:
        for told in table.rows:
            deviations = told.deviations or (None,) * len(told.scores)
            cells = zip(table.columns, table.metrics, told.scores, deviations, strict=True)
            for column, metric, score, deviation in cells:
                yield {
                    "kind": "published", "name": told.name, "table": table.id, "task": column, "metric": metric or "",
                    "value": score * 100 / table.scale, "source": told.source or table.paper,
                    "deviation": "" if deviation is None else deviation * 100 / table.scale,
                }  # fmt: skip


def figures(rows: Sequence[Row], theirs: Sequence[Published]) -> dict[str, Draw]:
    """How each table is drawn, by its name: those of our tasks by group, and the published ones."""
    from ..tasks.report import tables

    several = len({row.model for row in rows}) > 1
    models = {row.name: row.model for row in rows} if several else {}
    drawn: dict[str, Draw] = {table.title: _own(table, models) for table in tables(rows)}
    return drawn | {table.id: _beside(table, rows, several) for table in theirs}


def _own(table: ScoreTable, models: dict[str, str]) -> Draw:
    from ..plots.finding import Series
    from ..plots.scores import draw_scores

    series = [
        Series(_short(name, models.get(name, "")), scores, deviations, group=models.get(name, ""))
        for name, scores, deviations in table.rows
    ]
    bars = table.metric in BARS
    scales = "; each task has its own scale" if len(table.columns) > 1 < len(series) and not bars else ""
    told = f"{table.title}, {table.metric} × 100{scales}"
    return partial(draw_scores, table.columns, series, subtitle=told, bars=bars)


def _beside(table: Published, rows: Sequence[Row], several: bool) -> Draw:
    from ..plots.finding import Series
    from ..plots.scores import draw_scores
    from ..tasks.beside import HERE, lines
    from ..tasks.published import published

    table = published()[table.id]  # whole: who leads is not seen among the nearest rows
    series: list[Series] = []
    for line in lines(table, rows):
        group = f"published: {line.group}" if line.group else "published"
        ours = (line.group if several else HERE) if line.ours else group
        name = _short(line.name, line.group) if line.ours and several else line.name
        series.append(Series(name, line.scores, line.deviations, not line.ours, ours, line.other))
    if not any(not one.published for one in series) and len({one.group for one in series}) == 1:
        series = [replace(one, group="") for one in series]
    unit = "× 100" if table.scale == 100 else "as fractions of 1"
    told = f"{table.paper}, {table.table}: {table.title}; {unit}; filled: evaluated here, hollow: published"
    told += "; *: of other data, see the notes under the table" if any(one.marked for one in series) else ""
    return partial(draw_scores, table.columns, series, subtitle=told, digits=2 if table.scale == 100 else 4)


def _short(name: str, model: str) -> str:
    """A row's name without that of its model, which stands above it."""
    return name.removeprefix(f"{model} ") or name


def targets(plot: Path, names: Iterable[str]) -> dict[str, Path]:
    """The file of each figure: that of --plot for one, else one beside it with the name of its table.

    >>> targets(Path("all.svg"), ["sts", "bellm-1"])["bellm-1"].name
    'all-bellm-1.svg'
    """
    safe = {name: re.sub(r"[^\w.-]", "_", name)[:80] for name in names}
    return {name: plot.with_stem(f"{plot.stem}-{end}") if len(safe) > 1 else plot for name, end in safe.items()}


def draw(files: dict[str, Path], drawn: dict[str, Draw], dark: bool) -> None:
    """Draw the tables, and say where they are."""
    for name, path in files.items():
        draw_plot(path, dark, drawn[name])
        say(f"{name}: {path}" + (f" and {path.with_stem(f'{path.stem}-dark')}" if dark else ""))
