"""``afterword compare``: compare results with each other and with those of the papers."""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ..tasks.compare import Comparison
    from ..tasks.published import Published
    from ..tasks.report import Row

NEAREST = 3  # number of published rows that are shown for each of ours

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
        "place in, the rows nearest to yours.",
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
    plot: Annotated[
        Path | None,
        typer.Option(
            "--plot",
            metavar="FILE",
            help="Draw the scores, in the first published table if there is one, to this .png, .svg or .pdf file.",
        ),
    ] = None,
    list_tables: Annotated[bool, typer.Option("--list", help="List the published tables and end.")] = False,
) -> int:
    """Compare results with each other and with those of the papers.

    It prints differences by task with bootstrap intervals, and a paired t-test over tasks. Published rows are the
    figures that the papers print for their own models; nothing is run for them.
    """
    if list_tables:
        typer.echo(listed())
        return 0
    if not results:
        raise typer.BadParameter("give folders of results", param_hint="RESULTS")
    from ..tasks.published import chosen
    from ..tasks.report import markdown, tables

    if csv_file is not None:
        from ..files.atomic import check_target

        check_target(csv_file)
    if plot is not None:
        from ..plots.figure import check

        check(plot)
    rows = read(results)
    asked = published or []
    theirs = chosen(asked, [task for row in rows for task in row.results])
    if "all" in asked:
        theirs = [t for table in theirs for t in ([table] if table.id in asked else near(table, rows))]
    comparisons = compared(rows, baseline, draws)
    typer.echo(markdown(tables(rows)), nl=False)
    for comparison in comparisons:
        typer.echo(f"\n{difference_table(comparison)}")
    for table in theirs:
        typer.echo(f"\n{published_table(table, rows)}")
    if csv_file is not None:
        write(csv_file, as_csv(rows, comparisons, theirs))
    if plot is not None:
        draw(plot, rows, theirs)
    return 0


def listed() -> str:
    """The list of published tables."""
    from ..tasks.published import published

    return "\n".join(f"{t.id:<10} {t.paper}, {t.table}: {t.title} ({len(t.rows)} rows)" for t in published().values())


def read(folders: Sequence[Path]) -> list[Row]:
    """The results in these folders, each under a name of its own."""
    from ..tasks.report import named, read_results

    loaded = [(folder, row) for folder in folders for row in read_results(folder)]
    rows = named([row for _, row in loaded])
    counts = Counter(row.name for row in rows)
    return [
        replace(row, name=f"{folder}: {row.name}") if counts[row.name] > 1 else row
        for (folder, _), row in zip(loaded, rows, strict=True)
    ]


def compared(rows: Sequence[Row], baseline: str | None, draws: int) -> list[Comparison]:
    """Each encoder compared with the baseline."""
    from ..errors import InputError
    from ..tasks.compare import compare as compare_two

    names = [row.name for row in rows]
    if baseline is not None and baseline not in names:
        raise InputError(f"no results of {baseline!r}: there are {', '.join(names)}")
    first = rows[0 if baseline is None else names.index(baseline)]
    return [
        compare_two(first, row, draws) for row in rows if row is not first and set(row.results) & set(first.results)
    ]


def difference_table(comparison: Comparison) -> str:
    """Differences by task, their intervals, and the test over all of them."""
    from ..tasks.report import aligned

    cells = [["task", comparison.first, comparison.second, "difference", "95 % interval"]]
    for d in comparison.differences:
        low, high = d.interval
        interval = d.note or ("-" if math.isnan(low) else f"{low:+.2f} to {high:+.2f}")
        cells.append([d.task, f"{d.first:.2f}", f"{d.second:.2f}", f"{d.value:+.2f}", interval])
    test = (
        f"paired t-test over {len(comparison.differences)} tasks: t = {comparison.t:.2f}, p = {comparison.p:.2g}"
        if not math.isnan(comparison.p)
        else "no t-test: it needs two tasks that differ by different amounts"
    )
    head = f"{comparison.second} against {comparison.first}, x 100"
    return f"{head}\n\n{aligned(cells)}\n\nmean difference {comparison.mean:+.2f}; {test}"


def published_table(table: Published, rows: Sequence[Row]) -> str:
    """A table of a paper, with the results of these folders as its first rows."""
    from ..tasks.report import aligned

    digits = 2 if table.scale == 100 else 4
    cells = [[table.id, *table.columns, "whose"]]
    for row in rows:
        scores = table.scores_of(row.results)
        if any(s is not None for s in scores):
            cells.append([row.name, *("-" if s is None else f"{s:.{digits}f}" for s in scores), "evaluated here"])
    for published in table.rows:
        whose = f"published, {published.source}" if published.source else "published"
        cells.append([published.name, *(f"{s:.{digits}f}" for s in published.scores), whose])
    caption = f"{table.title}. {table.table} of {table.reference}." + (f" {table.note}" if table.note else "")
    return f"{caption}\n\n{aligned(cells)}"


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
    differences = [abs(a - b) for a, b in zip(theirs, ours, strict=True) if b is not None]
    return sum(differences) / len(differences) if differences else math.inf


def as_csv(rows: Sequence[Row], comparisons: Sequence[Comparison], theirs: Sequence[Published]) -> str:
    """All numbers as CSV, one per line: scores from here, their differences, and published scores."""
    out = StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        ["kind", "name", "against", "table", "task", "metric", "value", "low", "high", "deviation", "source"]
    )
    for row in rows:
        for r in row.results.values():
            writer.writerow(["evaluated", row.name, "", r.group, r.task, r.metric, 100 * r.main, "", "",
                             "" if r.deviation is None else 100 * r.deviation, ""])  # fmt: skip
    for c in comparisons:
        for d in c.differences:
            writer.writerow(["difference", c.second, c.first, d.group, d.task, "", d.value, *d.interval, "", d.note])
        writer.writerow(["difference", c.second, c.first, "", "mean", f"t={c.t} p={c.p}", c.mean, "", "", "", ""])
    for table in theirs:
        for told in table.rows:
            deviations = told.deviations or (None,) * len(told.scores)
            for column, metric, score, deviation in zip(
                table.columns, table.metrics, told.scores, deviations, strict=True
            ):
                writer.writerow(["published", told.name, "", table.id, column, metric or "",
                                 score * 100 / table.scale, "", "", "" if deviation is None else deviation,
                                 told.source or table.paper])  # fmt: skip
    return out.getvalue()


def write(path: Path, text: str) -> None:
    """Write a file whole, or not at all."""
    from ..files.atomic import atomic_file

    with atomic_file(path) as file:
        file.write(text.encode())


def draw(path: Path, rows: Sequence[Row], theirs: Sequence[Published]) -> None:
    """The first published table with our rows in it; without one, the first group of tasks."""
    from ..plots.scores import Series, draw_scores
    from ..tasks.report import tables

    if theirs:
        table = theirs[0]
        series = [Series(row.name, table.scores_of(row.results)) for row in rows]
        series += [Series(row.name, row.scores, published=True) for row in table.rows]
        draw_scores(table.columns, series, path, f"{table.paper}, {table.table}: {table.title}", "score")
        return
    first = tables(rows)[0]
    series = [Series(name, scores) for name, scores, _ in first.rows]
    draw_scores(first.columns, series, path, first.title, f"{first.metric} × 100")
