"""Open files of texts and of rows: .txt, .jsonl, .csv, .tsv and .parquet, gzipped or not.

Files are read a record at a time. A record that cannot be read does not stop the run: it carries its problem and line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

from ..errors import DataError, warn
from .lines import TEXT, USUAL_FORM, FileForm, JsonLinesReader, LinesReader, Reader
from .parquet import ParquetReader, ParquetRowsReader
from .sources import check_file, opened
from .tables import CsvReader

FORMATS = ("txt", "jsonl", "csv", "tsv", "parquet")
TABLES = FORMATS[1:]
"""Formats whose records have named fields."""
ENDINGS = (".jsonl", ".jsonl.gz", ".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet")
"""Endings of files of rows."""


def open_texts(
    path: Path | None,
    stdin: BinaryIO,
    *,
    kind: str | None = None,
    field: str | None = None,
    beside: Sequence[str] = (),
    form: FileForm = USUAL_FORM,
    tell: Callable[[str], object] = warn,
) -> Reader:
    """Open a file of texts.

    Args:
        path: of the file; None reads the standard input.
        stdin: the standard input, as bytes.
        kind: one of `FORMATS`; None goes by the file's ending, and is "txt" for the standard input.
        field: which column or field holds the texts; None = "text", or a table's only column.
        beside: further columns to read.
        form: its layout.
        tell: called with each choice that was made.

    Raises:
        MissingDataset: no such file.
        DataError: it has an unknown format, cannot be read, or has no such column.
    """
    if path is not None:
        check_file(path)
    kind = kind or ("txt" if path is None else _kind(path, FORMATS))
    name = "the standard input" if path is None else str(path)
    check_form(name, kind, form)
    if kind == "parquet":
        if path is None:
            raise DataError("a parquet file cannot be read from the standard input: give its path")
        return ParquetReader(path, field, beside)
    if kind == "txt" and (field is not None or beside):
        raise DataError(f"{name} is plain text: it has no column {field or beside[0]!r}")

    def reader(stream: BinaryIO) -> LinesReader:
        if kind == "txt":
            return LinesReader(stream, name=name, form=form)
        if kind == "jsonl":
            return JsonLinesReader(stream, field=field or TEXT, name=name, form=form, beside=beside)
        return CsvReader(stream, field=field, name=name, form=form, beside=beside, default=_usual(kind), tell=tell)

    if path is None:
        return reader(stdin)
    with opened(path) as stream:
        return _measured(reader(stream), path)


def open_rows(
    path: Path,
    field: str | None = None,
    *,
    kind: str | None = None,
    beside: Sequence[str] = (),
    form: FileForm = USUAL_FORM,
    tell: Callable[[str], object] = warn,
) -> Reader:
    """Open a file of rows, with all their fields.

    Args:
        path: a .jsonl, .csv, .tsv or .parquet file; all but the last may be gzipped.
        field: a column that must be there; None = any.
        kind: one of `TABLES`; None goes by the file's ending.
        beside: further columns that must be there.
        form: its layout.
        tell: called with each choice that was made.

    Raises:
        MissingDataset: no such file.
        DataError: it has an unknown format, cannot be read, or has no such column.
    """
    check_file(path)
    kind = kind or _kind(path, TABLES)
    check_form(str(path), kind, form)
    if kind == "parquet":
        return ParquetRowsReader(path, field, beside)
    with opened(path) as stream:
        if kind == "jsonl":
            return _measured(JsonLinesReader(stream, field=field, name=str(path), form=form, beside=beside), path)
        table = CsvReader(
            stream, field=field, name=str(path), rows=True, form=form, beside=beside, default=_usual(kind), tell=tell
        )
        return _measured(table, path)


def _usual(kind: str) -> str:
    return "\t" if kind == "tsv" else ","


def check_form(name: str, kind: str, form: FileForm) -> None:
    """Raise a DataError for a setting that files of this kind do not have."""
    if kind not in ("csv", "tsv") and (form.delimiter is not None or not form.header):
        option = "--no-header" if form.delimiter is None else "--delimiter"
        raise DataError(f"{name} is read as {kind}: {option} is for csv and tsv")
    if kind == "parquet" and form.encoding is not None:
        raise DataError(f"{name} is read as parquet: --encoding is for files of text")


def format_of(path: Path) -> str:
    """The format in a file's name, in lower case; "" if the name has no ending.

    >>> format_of(Path("a.jsonl")), format_of(Path("A.CSV.GZ"))
    ('jsonl', 'csv')
    """
    return Path(path.name.lower().removesuffix(".gz")).suffix.removeprefix(".")


def _kind(path: Path, among: Sequence[str]) -> str:
    kind = format_of(path)
    if kind not in among or (kind == "parquet" and path.suffix.lower() == ".gz"):
        raise DataError(
            f"{path} has an unknown format: give a .{', .'.join(among)} file; all but .parquet may be "
            "gzipped (.gz)" + (", or name its format" if "txt" in among else "")
        )
    return kind


def _measured(reader: LinesReader, path: Path) -> LinesReader:
    """The reader, with the file's size; a named pipe has none."""
    reader.total = path.stat().st_size if path.is_file() else None
    return reader
