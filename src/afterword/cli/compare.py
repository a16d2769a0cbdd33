"""``afterword compare``: compare results with each other and with those of the papers."""

from __future__ import annotations

import csv
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import DataError, one_line
from . import options as o
from .console import say
from .drawing import check_plot
from .tables import laid_out, paragraph, terminal

if TYPE_CHECKING:
    from ..papers.figure import Series
    from ..tasks.compare import Comparison
    from ..tasks.published import Line, Published
    from ..tasks.report import Row, ScoreTable

NO_TEST = "no t-test: it needs two sets of one group, metric and protocol"
COLUMNS = ("kind", "name", "against", "table", "task", "metric", "value", "low", "high", "deviation", "source", "notes")

Rows = Annotated[
    list[Path] | None,
    typer.Argument(metavar="RESULTS", help="Folders of results from `afterword evaluate`, or folders in them."),
]
Tables = Annotated[
    list[str] | None,
    typer.Option(
        "--published",
        metavar="TABLE",
        help="Add this table of a paper (see --list), all its rows; or all: of every table that your results have a "
        "place in, the rows nearest to yours. Without results: the papers' tables alone.",
    ),
]
Plot = Annotated[
    Path | None,
    typer.Option(
        "--plot",
        metavar="FILE",
        help="Draw every table to this .png, .svg or .pdf file; several to one file each: "
        "FILE with the table's name at its end.",
    ),
]


def compare(
    results: Rows = None,
    baseline: Annotated[
        str | None,
        typer.Option("--baseline", metavar="NAME", help="Compare all others with this one. Default: the first."),
    ] = None,
    published: Tables = None,
    draws: Annotated[
        int, typer.Option("--draws", min=0, metavar="N", help="Bootstrap samples for each interval; 0 = no intervals.")
    ] = 1000,
    csv_file: Annotated[
        Path | None, typer.Option("--csv", metavar="FILE", help="Write all scores and differences to this .csv file.")
    ] = None,
    plot: Plot = None,
    dark: o.Dark = False,
    list_tables: Annotated[bool, typer.Option("--list", help="List the published tables and end.")] = False,
) -> int:
    """Compare results with each other and with those of the papers.

    It prints differences by task with bootstrap intervals, and a paired t-test for each metric over the sets that have
    it. Published rows are the figures that the papers print for their own models; nothing is run for them.

    Examples:
        afterword compare --list
        afterword compare results
    """
    if list_tables:
        typer.echo(listed())
        return 0
    if not results and not published:
        raise typer.BadParameter("give folders of results, or --published for the papers' alone", param_hint="RESULTS")
    if csv_file is not None:
        check_csv(csv_file)
    check_plot(plot, dark)
    from ..tasks.report import markdown, tables

    rows = read(results or [])
    theirs = asked(published or [], rows)
    if rows and "all" in (published or ()) and not theirs:
        say("no published table has a column for these results: --list names them all")
    drawn = {} if plot is None else figures(rows, theirs)
    files = {} if plot is None else targets(plot, drawn)
    for file in files.values():
        check_plot(file, dark)
    comparisons, width = compared(rows, baseline, draws), terminal()
    parts = [markdown(tables(rows), partial(laid_out, width=width))] if rows else []
    parts += [f"{difference_table(comparison, width)}\n" for comparison in comparisons]
    parts += [f"{published_table(table, rows, width)}\n" for table in theirs]
    typer.echo("\n".join(parts), nl=False)
    if csv_file is not None:
        from ..files.atomic import atomic_file

        with atomic_file(csv_file) as opened:
            opened.write(as_csv(rows, comparisons, theirs).encode())
    draw(files, drawn, dark)
    return 0


def read(folders: Sequence[Path]) -> list[Row]:
    """The results in these folders, under unambiguous names.

    Raises:
        DataError: a folder holds no results.
    """
    from ..tasks.report import named, read_results

    loaded = [(at, row) for at in folders for row in read_results(at)]
    rows = named([row for _, row in loaded])
    counts = Counter(row.name for row in rows)
    return [
        replace(row, name=f"{at}: {row.name}") if counts[row.name] > 1 else row
        for (at, _), row in zip(loaded, rows, strict=True)
    ]


def asked(ids: Sequence[str], rows: Sequence[Row]) -> list[Published]:
    """The published tables that are asked for; of those that only "all" means, the rows nearest to ours.

    Raises:
        InputError: there is no such table.
    """
    from ..tasks.published import chosen, near

    tables = chosen(ids, [task for row in rows for task in row.results])
    if "all" not in ids or not rows:
        return tables
    return [t for table in tables for t in ([table] if table.id in ids else near(table, rows))]


def compared(rows: Sequence[Row], baseline: str | None, draws: int) -> list[Comparison]:
    """Each encoder compared with the baseline."""
    from ..errors import InputError
    from ..tasks.compare import compare as compare_two

    names = [row.name for row in rows]
    if baseline is not None and baseline not in names:
        raise InputError(f"no results of {baseline!r}: there are {', '.join(names) or 'none'}")
    if not rows:
        return []
    first = rows[0 if baseline is None else names.index(baseline)]
    return [
        compare_two(first, row, draws) for row in rows if row is not first and set(row.results) & set(first.results)
    ]


def listed() -> str:
    """List the published tables."""
    from ..tasks.published import published

    return "\n".join(f"{t.id:<10} {t.paper}, {t.table}: {t.title} ({len(t.rows)} rows)" for t in published().values())


def difference_table(comparison: Comparison, width: int | None) -> str:
    """Differences by task with their intervals, and the tests."""
    cells = [["task", comparison.first, comparison.second, "difference", "95 % interval"]]
    for d in comparison.differences:
        low, high = d.interval
        interval = d.note or ("-" if math.isnan(low) else f"{low:+.2f} to {high:+.2f}")
        cells.append([d.task, f"{d.first:.2f}", f"{d.second:.2f}", _signed(d.value), interval])
    head = paragraph(f"{comparison.second} against {comparison.first}, x 100", width)
    tests = "\n".join(paragraph(line, width) for line in paired_tests(comparison))
    return f"{head}\n\n{laid_out(cells, width)}\n\n{tests}"


def _signed(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:+.2f}"


def paired_tests(comparison: Comparison) -> list[str]:
    """The tests, each with the sets that it counts."""
    lines = []
    for test in comparison.tests:
        protocol = f", {test.kind.protocol}" if test.kind.protocol else ""
        line = f"{test.kind.group}, {test.kind.metric}{protocol}: mean difference {test.mean:+.2f} over "
        line += f"{len(test.tasks)} sets ({', '.join(test.tasks)}); "
        line += (
            "no t-test: all differ by the same amount"
            if math.isnan(test.p)
            else f"paired t-test: t = {test.t:.2f}, p = {test.p:.2g}"
        )
        lines.append(line)
    return lines or [NO_TEST]


def published_table(table: Published, rows: Sequence[Row], width: int | None) -> str:
    """A table of a paper, with the results of these folders as its first rows."""
    from ..tasks.published import lines

    found = lines(table, rows)
    notes = _numbered(table, found)
    columns = range(len(table.columns))
    cells = [[line.name, *(_cell(table, line, k, notes) for k in columns), line.whose] for line in found]
    caption = f"{table.title}. {table.table} of {table.reference}." + (f" {table.note}" if table.note else "")
    told = "".join(f"\n{paragraph(f'- ({i}) {note}', width, '  ')}" for note, i in notes.items())
    return f"{paragraph(caption, width)}\n\n{laid_out([[table.id, *table.columns, 'whose'], *cells], width)}" + (
        f"\n{told}" if told else ""
    )


def _numbered(table: Published, found: Sequence[Line]) -> dict[str, int]:
    """Every note on our scores, with its number."""
    told = [_told(table, k, note) for line in found for k in range(len(table.columns)) for note in line.note(k)]
    return {note: i for i, note in enumerate(dict.fromkeys(told), 1)}


def _told(table: Published, column: int, note: str) -> str:
    task = table.tasks[column]
    return note if task is None else f"{task}: {note}"


def _cell(table: Published, line: Line, k: int, numbers: Mapping[str, int]) -> str:
    """A score with its deviation, and the numbers of its notes."""
    score, deviation, digits = line.scores[k], line.deviations[k], 2 if table.scale == 100 else 4
    if score is None:
        return "-"
    text = f"{score:.{digits}f}" + ("" if deviation is None else f" ± {deviation:.{digits}f}")
    marks = sorted(numbers[_told(table, k, note)] for note in line.note(k))
    return text + (f" ({','.join(map(str, marks))})" if marks else "")


def check_csv(path: Path) -> None:
    """Refuse a .csv file that cannot be written, before anything is computed.

    Raises:
        DataError: it is a folder, lies in none, or is a file of results.
    """
    from ..files.atomic import check_target

    if path.suffix == ".json":
        raise DataError(f"{path} may be a result of `afterword evaluate`: give another name, as in scores.csv")
    check_target(path)


def as_csv(rows: Sequence[Row], comparisons: Sequence[Comparison], theirs: Sequence[Published]) -> str:
    """All numbers as CSV, one per line: scores from here, their differences and tests, and published scores."""
    out = StringIO()
    writer = csv.DictWriter(out, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    for line in (*_evaluated(rows), *_compared(comparisons), *_published(theirs)):
        writer.writerow({key: one_line(value) if isinstance(value, str) else value for key, value in line.items()})
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


@dataclass(frozen=True)
class Drawn:
    """A figure of a table: its columns and lines, and what is written above and below them."""

    columns: Sequence[str]
    series: Sequence[Series]
    title: str
    note: str
    digits: int = 2


def figures(rows: Sequence[Row], theirs: Sequence[Published]) -> dict[str, Drawn]:
    """The figure of each table, by its name: those of our tasks by group, and the published ones."""
    from ..tasks.report import tables

    several = len({row.model for row in rows}) > 1
    models = {row.name: row.model for row in rows} if several else {}
    drawn = {table.title: _of_results(table, models) for table in tables(rows)}
    return drawn | {table.id: _of_published(table, rows, several) for table in theirs}


def _of_results(table: ScoreTable, models: dict[str, str]) -> Drawn:
    from ..papers.figure import Series

    note = f"{table.metric} × 100"
    if len(table.rows) == 1:
        ((name, scores, deviations),) = table.rows
        deviations = deviations or (None,) * len(scores)
        lines = [Series(*line) for line in zip(table.columns, zip(scores), zip(deviations), strict=True)]
        return Drawn((name,), lines, table.title, note)
    series = [
        Series(_short(name, models.get(name, "")), scores, deviations, group=models.get(name, ""))
        for name, scores, deviations in table.rows
    ]
    scales = "; each task has its own scale" if len(table.columns) > 1 else ""
    return Drawn(table.columns, series, table.title, note + scales)


def _of_published(table: Published, rows: Sequence[Row], several: bool) -> Drawn:
    from ..papers.figure import Series
    from ..tasks.published import HERE, lines, published

    table = published()[table.id]  # all of it: the best is not always among the nearest rows
    series: list[Series] = []
    for line in lines(table, rows):
        group = f"published: {line.group}" if line.group else "published"
        ours = (line.group if several else HERE) if line.ours else group
        name = _short(line.name, line.group) if line.ours and several else line.name
        series.append(Series(name, line.scores, line.deviations, not line.ours, ours, line.other))
    if not any(not one.published for one in series) and len({one.group for one in series}) == 1:
        series = [replace(one, group="") for one in series]
    unit = "× 100" if table.scale == 100 else "as fractions of 1"
    note = f"{unit}; filled: evaluated here, hollow: published"
    note += "; *: of different data, see the notes under the table" if any(one.marked for one in series) else ""
    title = f"{table.paper}, {table.table}: {table.title}"
    return Drawn(table.columns, series, title, note, 2 if table.scale == 100 else 4)


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


def draw(files: dict[str, Path], drawn: dict[str, Drawn], dark: bool) -> None:
    """Draw the tables, and say where they are."""
    if not files:
        return
    from ..papers import figure

    for name, path in files.items():
        one = drawn[name]
        size, panels = figure.scores_layout(one.columns, one.series)
        plot = partial(figure.plot_scores, columns=one.columns, series=one.series, digits=one.digits)
        figure.draw(path, plot, size=size, panels=panels, title=one.title, note=one.note, dark=dark)
        say(f"{name}: {path}" + (f" and {path.with_stem(f'{path.stem}-dark')}" if dark else ""))
