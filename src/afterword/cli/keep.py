"""Columns of the input that a command writes beside its vectors."""

from __future__ import annotations

import csv
from collections.abc import Sequence

import typer


def read_keep(spelled: Sequence[str] | None, taken: Sequence[str]) -> list[str]:
    """The names of the columns to keep.

    Args:
        spelled: names, separated by commas; a name that holds a comma is written in double quotes.
        taken: names that the output has already.

    Raises:
        typer.BadParameter: a name is given twice, or taken.

    >>> read_keep(['id,"last, first"', "channel"], ["text", "vector"])
    ['id', 'last, first', 'channel']
    """
    names = [name.strip() for row in csv.reader(spelled or []) for name in row]
    for name in names:
        if not name:
            raise typer.BadParameter("it names no column: write --keep id,channel", param_hint="--keep")
        if names.count(name) > 1:
            raise typer.BadParameter(f"{name!r} is given twice", param_hint="--keep")
        if name in taken:
            raise typer.BadParameter(
                f"the output has a column {name!r} of its own: rename that of the input", param_hint="--keep"
            )
    return names
