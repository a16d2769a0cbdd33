"""``afterword index --queries``: what recall is measured by."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import typer

from ..errors import DataError
from .inputs import open_reader


def read_measuring(spelled: str) -> int | list[str]:
    """A number of texts of the index, or the queries of a file.

    Raises:
        typer.BadParameter: the number is 0, or there is no such file.
        DataError: the file cannot be read, or a row of it holds no query.

    >>> read_measuring("200")
    200
    """
    from ..jobs.items import items_of

    if spelled.isascii() and spelled.isdigit():
        if not int(spelled):
            raise typer.BadParameter("0 queries measure nothing: give a number from 1 on", param_hint="--queries")
        return int(spelled)
    path = Path(spelled)
    if not path.is_file():
        raise typer.BadParameter(f"{spelled!r} is no file: give a number, or a file of queries", param_hint="--queries")
    found = []
    with closing(open_reader(None, path, None, None)) as reader:
        for item in items_of(reader):
            if item.problem is not None:
                raise DataError(f"{spelled}: line {item.line} {item.problem}: write a query there, or take it out")
            found.append(item.text or "")
    if not found:
        raise DataError(f"{spelled} holds no query: write one a line")
    return found
