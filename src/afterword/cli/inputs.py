"""The input of a command: texts given as arguments, or those of a file or of the standard input."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, BinaryIO

import typer

from .console import say

if TYPE_CHECKING:
    from ..files.lines import FileForm, Reader


def open_reader(
    texts: Sequence[str] | None,
    path: Path | None,
    kind: str | None,
    column: str | None,
    beside: Mapping[str, Sequence[str]] = MappingProxyType({}),
    form: FileForm | None = None,
) -> Reader:
    """Open the input: texts given as arguments, else a file, else the standard input.

    Args:
        texts: the texts.
        path: of the file.
        kind: its format.
        column: the column that holds the texts.
        beside: other columns to read, by the option that names them.
        form: how the file is written, from `read_form`.

    Raises:
        typer.BadParameter: texts and a file are given, or the name of a file is given as a text; an option says how a
            file is read, and texts are given.
        DataError: the file cannot be read.
    """
    from ..files.lines import USUAL_FORM, ListedReader
    from ..files.read import FORMATS, format_of, open_texts

    form = form or USUAL_FORM
    if texts and path is not None:
        raise typer.BadParameter("give texts, or a file with --input, not both")
    if texts and path is None:
        for text in texts:
            if format_of(Path(text)) in FORMATS and os.path.isfile(text):
                raise typer.BadParameter(f"{text!r} is a file: --input {text} reads it", param_hint="TEXTS")
        given = {
            "--format": kind, "--column": column, "--delimiter": form.delimiter, "--encoding": form.encoding,
            "--no-header": not form.header, **beside,
        }  # fmt: skip
        for option in (name for name, value in given.items() if value):
            raise typer.BadParameter("it says how a file is read, and texts are given", param_hint=option)
        return ListedReader(list(texts))
    path = None if path is None or str(path) == "-" else path
    if path is None and sys.stdin.isatty():
        typer.echo("texts from the keyboard, one a line; Ctrl-D ends them", err=True)
    columns = [name for names in beside.values() for name in names]
    return open_texts(path, stdin_bytes(), kind=kind, field=column, beside=columns, form=form, tell=say)


def read_form(delimiter: str | None, encoding: str | None, no_header: bool) -> FileForm:
    """How a file is written, from the options that say it.

    Raises:
        typer.BadParameter: the delimiter is no single character, or no encoding has this name.
    """
    from ..errors import DataError
    from ..files.lines import FileForm
    from ..files.read import check_encoding

    if delimiter is not None:
        delimiter = {"tab": "\t", "\\t": "\t"}.get(delimiter, delimiter)
        if len(delimiter) != 1 or delimiter in '"\r\n':
            raise typer.BadParameter(f"{delimiter!r}: give one character, or tab", param_hint="--delimiter")
    try:
        return FileForm(delimiter, None if encoding is None else check_encoding(encoding), not no_header)
    except DataError as e:
        raise typer.BadParameter(str(e), param_hint="--encoding") from None


def check_one(**options: object) -> None:
    """Refuse two options of which one has no effect: ``check_one(prompt=..., prompt_name=...)``.

    Raises:
        typer.BadParameter: more than one is given.
    """
    given = [f"--{name.replace('_', '-')}" for name, value in options.items() if value is not None]
    if len(given) > 1:
        raise typer.BadParameter(f"give {given[0]} or {given[1]}, not both", param_hint=given[1])


def stdin_bytes() -> BinaryIO:
    """The standard input, as bytes."""
    return sys.stdin.buffer
