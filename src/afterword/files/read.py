"""Files of texts and of rows, .txt, .jsonl, .csv and .parquet, gzipped or not, a record at a time.

No file sits in memory whole. A record that cannot be read is no end of the run: it is handed on with its problem and
its line.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from ..errors import DataError, MissingDataset
from .lines import TEXT, JsonLinesReader, LinesReader, Reader, Stream
from .tables import CsvReader, ParquetReader, ParquetRowsReader, first_line, pick

FORMATS = ("txt", "jsonl", "csv", "parquet")
TABLES = FORMATS[1:]
"""Formats whose records have fields of their own names."""
ENDINGS = (".jsonl", ".jsonl.gz", ".csv", ".csv.gz", ".parquet")
"""Of files of rows."""


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
        DataError: it is of no known format, cannot be read, or has no such column.
    """
    kind = kind or ("txt" if path is None else _kind(path, FORMATS))
    if path is None and kind == "parquet":
        raise DataError("a parquet file cannot be read from the standard input: give its path")
    name = "the standard input" if path is None else str(path)
    if path is not None and kind == "parquet":
        _check_file(path)
        return ParquetReader(path, field, beside)
    if kind == "txt" and (field is not None or beside):
        raise DataError(f"{name} is plain text: it has no column {field or beside[0]!r}")
    if path is None:
        return _reader(kind, stdin, name, field or TEXT if kind == "jsonl" else field, beside)
    with _opened(path) as stream:
        return _measured(_reader(kind, stream, name, field or TEXT if kind == "jsonl" else field, beside), path)


def open_rows(path: Path, field: str | None = None, *, kind: str | None = None) -> Reader:
    """Open a file of rows, with all their fields.

    Args:
        path: a .jsonl, .csv or .parquet file; the two former may be gzipped.
        field: a column that must be there; None takes any.
        kind: one of `TABLES`; None goes by the file's ending.

    Raises:
        MissingDataset: no such file.
        DataError: it is of no known format, cannot be read, or has no such column.
    """
    kind = kind or _kind(path, TABLES)
    if kind == "parquet":
        _check_file(path)
        return ParquetRowsReader(path, field)
    with _opened(path) as stream:
        return _measured(_reader(kind, stream, str(path), field, rows=True), path)


def _reader(
    kind: str, stream: Stream, name: str, field: str | None, beside: Sequence[str] = (), *, rows: bool = False
) -> LinesReader:
    if kind == "txt":
        return LinesReader(stream)
    if kind == "jsonl":
        return JsonLinesReader(stream, field=field, name=name)
    table = CsvReader(stream, field=field, name=name, rows=rows)
    for column in beside:
        pick(name, column, table.header)
    return table


def format_of(path: Path) -> str:
    """The format that a file's name tells of, in lower case; "" where it tells of none.

    >>> format_of(Path("a.jsonl")), format_of(Path("A.CSV.GZ"))
    ('jsonl', 'csv')
    """
    return Path(path.name.lower().removesuffix(".gz")).suffix.removeprefix(".")


def _kind(path: Path, among: Sequence[str]) -> str:
    kind = format_of(path)
    if kind not in among or (kind == "parquet" and path.suffix.lower() == ".gz"):
        raise DataError(
            f"{path} is of no known format: give a .{', .'.join(among)} file, the others than .parquet perhaps "
            "gzipped (.gz)" + (", or name its format" if "txt" in among else "")
        )
    return kind


def _check_file(path: Path) -> None:
    if not path.exists():
        raise MissingDataset(f"{path} is not there")
    if path.is_dir():
        raise DataError(f"{path} is a folder: give a file")


@contextmanager
def _opened(path: Path) -> Iterator[Stream]:
    """The file's bytes, unpacked where its name ends in .gz; closed where no reader of them can be made."""
    _check_file(path)
    try:
        file = path.open("rb")
    except OSError as e:
        raise DataError(f"{path} cannot be read: {e.strerror or e}") from None
    try:
        yield Unpacked(file, str(path)) if path.suffix.lower() == ".gz" else file
    except BaseException:
        file.close()
        raise


def _measured(reader: LinesReader, path: Path) -> LinesReader:
    """The reader, which tells how much of the file it has read; a pipe has no size, though it may have a name."""
    reader.total = path.stat().st_size if path.is_file() else None
    if isinstance(reader.stream, Unpacked):
        reader.place = reader.stream.place
    return reader


class Unpacked:
    """A gzipped file, read as if it were not.

    Args:
        file: open for reading bytes; closed by `close`.
        name: of the file, for errors.
    """

    def __init__(self, file: BinaryIO, name: str) -> None:
        self.file, self.name, self.content = file, name, gzip.GzipFile(fileobj=file)

    def readline(self, size: int = -1, /) -> bytes:
        """The next line, or so many bytes of it.

        Raises:
            DataError: the file is damaged, or ends too early.
        """
        try:
            return self.content.readline(size)
        except (OSError, EOFError, zlib.error) as e:
            raise DataError(
                f"{self.name} cannot be read: it is not a whole .gz file ({first_line(e)}): pack or fetch it again"
            ) from None

    def place(self) -> int:
        """How many bytes of the packed file have been read."""
        return self.file.tell()

    def close(self) -> None:
        """Close the file."""
        self.content.close()
        self.file.close()
