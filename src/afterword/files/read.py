"""Texts from .txt, .jsonl, .csv and .parquet, a record at a time: no file sits in memory whole.

A record that cannot be read is no end of the run: it is handed on with its problem and its line.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from ..errors import DataError, MissingDataset
from .lines import TEXT, JsonLinesReader, LinesReader, Reader
from .tables import CsvReader, ParquetReader, pick

FORMATS = ("txt", "jsonl", "csv", "parquet")


def open_texts(
    path: Path | None,
    stdin: BinaryIO,
    *,
    kind: str | None = None,
    field: str | None = None,
    beside: Sequence[str] = (),
) -> Reader:
    """Open a file of texts.

    Args:
        path: of the file; None reads the standard input.
        stdin: the standard input, as bytes.
        kind: one of `FORMATS`; None goes by the file's ending, and is "txt" for the standard input.
        field: which column or field holds the texts; None = "text", or a table's only column.
        beside: other columns to read.

    Raises:
        MissingDataset: no such file.
        DataError: it is of no known format, or has no such column.
    """
    kind = kind or ("txt" if path is None else path.suffix.lower().removeprefix("."))
    if kind not in FORMATS:
        raise DataError(f"{path} is of no known format: give a .{', .'.join(FORMATS)} file, or name its format")
    if path is not None and not path.exists():
        raise MissingDataset(f"{path} is not there")
    if path is not None and path.is_dir():
        raise DataError(f"{path} is a folder: give a file")
    if kind == "parquet":
        if path is None:
            raise DataError("a parquet file cannot be read from the standard input: give its path")
        return ParquetReader(path, field, beside)
    stream = stdin if path is None else path.open("rb")
    return _of_lines(kind, stream, path, field, beside)


def _of_lines(kind: str, stream: BinaryIO, path: Path | None, field: str | None, beside: Sequence[str]) -> Reader:
    # A pipe has no size, though it may have a name.
    total = path.stat().st_size if path is not None and path.is_file() else None
    name = "the standard input" if path is None else str(path)
    if kind == "jsonl":
        return JsonLinesReader(stream, total, field or TEXT, name)
    if kind == "csv":
        table = CsvReader(stream, total, field, name)
        for column in beside:
            pick(name, column, table.header)
        return table
    if field is not None or beside:
        raise DataError(f"{name} is plain text: it has no column {field or beside[0]!r}")
    return LinesReader(stream, total)
