"""The input of a command: texts given as arguments, or those of a file or of the standard input."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import typer

if TYPE_CHECKING:
    from ..files.lines import Reader
    from ..jobs.items import Item


def open_reader(
    texts: Sequence[str] | None, path: Path | None, kind: str | None, column: str | None, beside: Sequence[str] = ()
) -> Reader:
    """Open the input: texts given as arguments, else a file, else the standard input.

    Raises:
        typer.BadParameter: texts and a file are given, or the name of a file is given as a text.
        DataError: the file cannot be read.
    """
    from ..files.lines import ListedReader
    from ..files.read import FORMATS, format_of, open_texts

    if texts and path is not None:
        raise typer.BadParameter("give texts, or a file with --input, not both")
    if texts and path is None:
        for text in texts:
            if format_of(Path(text)) in FORMATS and _is_file(text):
                raise typer.BadParameter(f"{text!r} is a file: --input {text} reads it", param_hint="TEXTS")
        return ListedReader(list(texts))
    path = None if path is None or str(path) == "-" else path
    if path is None and sys.stdin.isatty():
        typer.echo("texts from the keyboard, one a line; Ctrl-D ends them", err=True)
    return open_texts(path, stdin_bytes(), kind=kind, field=column, beside=beside)


def stdin_bytes() -> BinaryIO:
    """The standard input, as bytes."""
    return sys.stdin.buffer


def _is_file(name: str) -> bool:
    try:
        return Path(name).is_file()
    except (OSError, ValueError):
        return False


def items_of(reader: Reader, condition: str | None = None, condition_field: str | None = None) -> Iterator[Item]:
    """The rows of the input, each a text with its condition, or the reason why it cannot be used."""
    from ..jobs.items import Item, fault

    for record in reader:
        if record.fields is None:
            yield Item(record.line, None, record.problem)
            continue
        if reader.field not in record.fields:
            yield Item(record.line, None, f"has no field {reader.field!r}")
            continue
        text, beside = record.fields[reader.field], condition
        problem = fault(text)
        if condition_field is not None:
            beside = record.fields.get(condition_field)
            wrong = fault(beside)
            problem = problem or (f"{condition_field!r} {wrong}" if wrong else None)
        yield Item(record.line, text if problem is None else None, problem, beside)
