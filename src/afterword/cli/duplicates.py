"""``afterword duplicates``: find texts that repeat others, or nearly so."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import options as o
from .console import REJECTED
from .gathered import Gathered, check_output, gather, say_notes, write_listing
from .inputs import read_form
from .model import ModelChoice
from .progress import RowsBar
from .tables import Column, page_width, table

if TYPE_CHECKING:
    from ..search.groups import Duplicates

GROUPS = 10  # groups that are printed
MEMBERS = 3  # repeats of a group that are printed


def duplicates(
    input: o.Input = None,
    over: Annotated[
        float,
        typer.Option("--over", metavar="X", help="Texts whose vectors have a cosine of at least X repeat each other."),
    ] = 0.9,
    model: o.ModelOfTexts = None,
    format: o.Format = None,
    field: o.Field = None,
    delimiter: o.Delimiter = None,
    encoding: o.Encoding = None,
    no_header: o.NoHeader = False,
    method: o.MethodOrColumn = None,
    prompt: o.Prompt = None,
    max_length: o.MaxLength = None,
    on_long: o.OnLong = "warn",
    batch_tokens: o.BatchTokens = None,
    device: o.Device = None,
    dtype: o.Dtype = None,
    revision: o.Revision = None,
    trust_remote_code: o.Trust = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="FILE", help="Write the rows that are kept to this .jsonl, .csv or .parquet file."
        ),
    ] = None,
    repeats: Annotated[
        Path | None,
        typer.Option(
            "--repeats",
            metavar="FILE",
            help="Write the other rows to this file: row, line or id, text, the row that each repeats, their cosine.",
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace files that exist.")] = False,
    as_json: o.AsJson = False,
    progress: o.Progress = None,
) -> int:
    """Find texts that repeat others, or nearly so, and keep one of each.

    All pairs are compared. A text is in a group if it is near any text of it; the first row is kept.

    Examples:
        afterword duplicates -i vectors.parquet --over 0.9 -o kept.jsonl
        afterword duplicates -m minilm -i texts.txt --repeats repeats.csv
    """
    from ..search.groups import check_threshold, near_duplicates

    check_threshold(over)
    form = read_form(delimiter, encoding, no_header)
    for path, option in ((output, "--output"), (repeats, "--repeats")):
        check_output(path, input, overwrite, option)
    if output is not None and repeats is not None and output.resolve() == repeats.resolve():
        raise typer.BadParameter(f"{repeats} is the file of --output", param_hint="--repeats")
    choice = model and ModelChoice(model, device, dtype, max_length, revision, trust_remote_code)
    settings = {"prompt": prompt, "batch_tokens": batch_tokens, "on_long": on_long}
    found = gather(input, choice or None, method, settings, field, format, form)
    with RowsBar(len(found.vectors), progress) as bar:
        listing = listed(found, near_duplicates(found.vectors, over, by_pairs(bar, len(found.vectors))))
    if output is not None:
        write_listing(output, found.listed(listing.kept, text=_texts(found, listing.kept)))
    if repeats is not None:
        lines = [line for line, _, _ in listing.repeats]
        write_listing(repeats, found.listed(lines, **_columns(found, listing)))
    typer.echo("\n".join(_json(found, listing, over) if as_json else page(found, listing, over)))
    say_notes(found)
    return REJECTED if found.rejected else 0


def by_pairs(bar: RowsBar, rows: int) -> Callable[[int], None]:
    """Moves a bar as far as the share of all pairs that was compared: the first rows are compared with all others."""
    left = rows
    bar.begin(rows, rows)

    def done(more: int) -> None:
        nonlocal left
        before, left = left, left - more
        bar.more((before**2 - left**2) / rows)

    return done


@dataclass(frozen=True)
class Listing:
    """The rows of an input, by their numbers from 1.

    Attributes:
        kept: the rows that are kept, in ascending order.
        repeats: the others: the row, the kept row that it repeats, their cosine.
    """

    kept: Sequence[int]
    repeats: Sequence[tuple[int, int, float]]


def listed(found: Gathered, groups: Duplicates) -> Listing:
    """All rows of the input, those that hold the same text too: they have a cosine of 1."""
    kept: list[int] = []
    repeats: list[tuple[int, int, float]] = []
    for i, (first, cosine) in enumerate(zip(groups.kept.tolist(), groups.cosines.tolist(), strict=True)):
        one, *others = found.lines[i]
        if first == i:
            kept.append(one)
        else:
            repeats.append((one, found.lines[first][0], cosine))
        repeats += [(line, found.lines[first][0], cosine) for line in others]
    return Listing(sorted(kept), sorted(repeats))


def _texts(found: Gathered, lines: Sequence[int]) -> list[str]:
    """The texts of some lines, in any order."""
    number = {line: i for i, lines in enumerate(found.lines) for line in lines}
    wanted = sorted({number[line] for line in lines})
    texts = dict(zip(wanted, found.texts(wanted), strict=True))
    return [texts[number[line]] for line in lines]


def _columns(found: Gathered, listing: Listing) -> dict[str, Sequence[Any]]:
    """The table of the repeats, without their names."""
    lines, kept, cosines = zip(*listing.repeats, strict=True) if listing.repeats else ((), (), ())
    return {"text": _texts(found, lines), "repeats": list(map(found.named, kept)), "cosine": cosines}


def _json(found: Gathered, listing: Listing, over: float) -> list[str]:
    """One line of JSON: counts, and all repeats."""
    columns = {found.key: [found.named(line) for line, _, _ in listing.repeats], **_columns(found, listing)}
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    counts = {"over": over, "rows": found.rows, "kept": len(listing.kept), "without_vector": found.missing}
    return [json.dumps({**counts, "repeats": rows}, ensure_ascii=False)]


def page(found: Gathered, listing: Listing, over: float) -> list[str]:
    """The lines of a page: a summary, and the largest groups, each under its kept row."""
    groups: dict[int, list[tuple[float, int]]] = {}
    for line, kept, cosine in listing.repeats:
        groups.setdefault(kept, []).append((cosine, line))
    head = f"{found.rows:,} rows: {len(listing.kept):,} kept, {len(listing.repeats):,} repeat one of {len(groups):,} "
    lines = [f"{head}of them (cosine {over:g} or more)"]
    largest = sorted(groups.items(), key=lambda group: (-len(group[1]), group[0]))[:GROUPS]
    if not largest:
        return lines
    cells: list[tuple[str, int]] = []
    for kept, members in largest:
        cells.append((f"{len(members) + 1}x", kept))
        cells += [(f"{cosine:.3f}", line) for cosine, line in members[:MEMBERS]]
    first = [
        Column([cell for cell, _ in cells], "label"),
        Column([str(found.named(line)) for _, line in cells], "label"),
    ]
    lines += ["", *table([*first, Column(_texts(found, [line for _, line in cells]), "text")], page_width())]
    more = len(groups) - len(largest)
    return [*lines, f"... and {more:,} more groups"] if more > 0 else lines
