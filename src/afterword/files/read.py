"""Open files of texts and of rows: .txt, .jsonl, .csv, .tsv and .parquet; all but the last may be gzipped.

A record that cannot be read does not stop the run: it carries its problem and line.
"""

from __future__ import annotations

import codecs
import gzip
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO, cast

from ..errors import DataError, MissingDataset, warn
from .lines import TEXT, USUAL_FORM, FileForm, JsonLinesReader, LinesReader, Reader, no_field
from .tables import CsvReader, ParquetReader

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
    keep: Sequence[str] = (),
    form: FileForm = USUAL_FORM,
    tell: Callable[[str], object] = warn,
) -> Reader:
    """Open a file of texts.

    Args:
        path: the file; None reads the standard input.
        stdin: the standard input, as bytes.
        kind: one of `FORMATS`; None goes by the file's ending, and is "txt" for the standard input.
        field: which column or field holds the texts; None = "text", or a table's only column.
        keep: further columns to read.
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
    if kind == "txt" and (field is not None or keep):
        raise DataError(f"{name} is a text file: it has no column {field or keep[0]!r}")
    reader = _reader(stdin if path is None else path, name, kind, form, tell)
    if isinstance(reader, JsonLinesReader):
        reader.need(field or TEXT, keep)
    elif isinstance(reader, CsvReader | ParquetReader):
        only = reader.columns[0] if len(reader.columns) == 1 else TEXT
        _need(reader, field or only, keep)
        if isinstance(reader, ParquetReader):
            reader.read_only(reader.field, keep)
        elif form.header and field is None and reader.columns and only != TEXT:
            tell(f"{name}: {only[:60]!r} is taken as the header, not as a text")
    return reader


def open_rows(
    path: Path,
    field: str | None = None,
    *,
    kind: str | None = None,
    keep: Sequence[str] = (),
    form: FileForm = USUAL_FORM,
    tell: Callable[[str], object] = warn,
) -> Reader:
    """Open a file of rows, with all their fields. Arguments and errors are as for `open_texts`, except for these.

    Args:
        path: the file.
        field: a column that must be there; None = any.
        kind: one of `TABLES`; None goes by the file's ending.
        keep: further columns that must be there.
    """
    check_file(path)
    reader = _reader(path, str(path), kind or _kind(path, TABLES), form, tell)
    if isinstance(reader, JsonLinesReader):
        reader.need(field, keep)
    elif isinstance(reader, CsvReader | ParquetReader):
        _need(reader, field, keep)
    return reader


def _reader(source: Path | BinaryIO, name: str, kind: str, form: FileForm, tell: Callable[[str], object]) -> Reader:
    """Open a file of this format."""
    if kind == "parquet":
        if not isinstance(source, Path):
            raise DataError("a parquet file cannot be read from the standard input: pass its path")
        return ParquetReader(source)
    stream = _opened(source) if isinstance(source, Path) else source
    reader: LinesReader
    if kind == "txt":
        reader = LinesReader(stream, name, form)
    elif kind == "jsonl":
        reader = JsonLinesReader(stream, name, form)
    else:
        reader = CsvReader(stream, name, form, "\t" if kind == "tsv" else ",", tell)
    if isinstance(source, Path) and source.is_file():  # a named pipe has no size
        reader.total = source.stat().st_size
    return reader


def _need(reader: CsvReader | ParquetReader, field: str | None, keep: Sequence[str]) -> None:
    """Set the column of the texts; raise a DataError if a column is missing or two have the same name."""
    columns = reader.columns
    if twice := [column for column in dict.fromkeys(columns) if column and columns.count(column) > 1]:
        raise DataError(f"{reader.name} has two columns named {', '.join(map(repr, twice))}: rename one")
    empty = isinstance(reader, CsvReader) and not columns
    fix = "choose one of them, or pass delimiter=" if isinstance(reader, CsvReader) else "choose one of them"
    for column in (*([field] if field else []), *keep):
        if column not in columns and not empty:
            no_field(reader.name, column, columns, fix)
    reader.field = field or TEXT
    reader.kinds = {column: reader.kind(column) for column in keep}


def _opened(path: Path) -> BinaryIO:
    try:
        return cast(BinaryIO, gzip.GzipFile(path)) if path.suffix.lower() == ".gz" else path.open("rb")
    except OSError as e:
        raise DataError(f"{path} cannot be read: {e.strerror or e}") from None


def check_file(path: Path) -> None:
    """Raise a MissingDataset or a DataError if there is no such file."""
    if path.is_dir():
        raise DataError(f"{path} is a folder: pass a file")
    if not path.exists():
        raise MissingDataset(f"{path} does not exist")


def check_encoding(name: str) -> str:
    """Return an encoding's name; raise a DataError if Python does not know it.

    >>> check_encoding("cp1252")
    'cp1252'
    """
    try:
        "".encode(name)
        codecs.getincrementaldecoder(name)
    except (LookupError, ValueError):
        raise DataError(f"{name!r} is not an encoding: pass a name such as utf-8, utf-16, cp1252 or gb18030") from None
    return name


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
            f"{path} has an unknown format: pass a .{', .'.join(among)} file; all but .parquet may be gzipped (.gz)"
        )
    return kind
