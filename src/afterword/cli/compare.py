"""``afterword compare``: compare results with each other and with those of the papers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from . import options as o
from .compare_files import as_csv, check_csv, draw, figures, targets, write
from .compare_tables import difference_table, listed, published_table
from .console import say
from .drawing import check_plot
from .lay_tables import laid_out, terminal

if TYPE_CHECKING:
    from ..tasks.compare import Comparison
    from ..tasks.published import Published
    from ..tasks.report import Row

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
        write(csv_file, as_csv(rows, comparisons, theirs))
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
    from ..tasks.beside import near
    from ..tasks.published import chosen

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
