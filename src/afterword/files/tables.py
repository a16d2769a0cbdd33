"""Texts from the columns of .csv and .parquet files, a few rows at a time."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..errors import DataError, MissingExtra
from .lines import LONGEST, TEXT, LinesReader, Reader, Record, Stream, no_field

BATCH = 1024  # rows of a parquet file that are held at once


class CsvReader(LinesReader):
    """A table with a header, separated by commas, as RFC 4180 has it.

    Args:
        stream: open for reading bytes.
        total: its length in bytes, where it is known.
        field: which column holds the texts; None = "text", or the only one.
        name: of the file, for errors.
        rows: whole rows are read, so that without `field` any columns will do.

    Raises:
        DataError: it has no such column.
    """

    def __init__(
        self,
        stream: Stream,
        total: int | None = None,
        field: str | None = None,
        name: str = "the input",
        *,
        rows: bool = False,
    ) -> None:
        super().__init__(stream, total)
        csv.field_size_limit(LONGEST)
        self.rows = csv.reader(text + "\n" for _, text, _ in self.lines())
        try:
            self.header = next(self.rows, [])
        except csv.Error as e:
            raise DataError(f"{name} is not CSV: line {self.rows.line_num}: {e}") from None
        self.field = TEXT if rows and field is None else pick(name, field, self.header)

    def __iter__(self) -> Iterator[Record]:
        while True:
            line = self.rows.line_num + 1
            try:
                row = next(self.rows)
            except StopIteration:
                return
            except csv.Error as e:
                yield Record(line, None, f"is not CSV: {e}")
                continue
            yield self._record(line, row)

    def _record(self, line: int, row: list[str]) -> Record:
        # A blank line is a row without fields; in a table of one column it is an empty one.
        row = row or [""] * (len(self.header) == 1)
        if len(row) != len(self.header):
            fix = "put texts with commas in double quotes" if len(row) > len(self.header) else "one is missing"
            return Record(line, None, f"has {len(row)} fields, the header has {len(self.header)}: {fix}")
        return Record(line, dict(zip(self.header, row, strict=True)))


class ParquetRowsReader(Reader):
    """All columns of a .parquet file, of any type.

    Args:
        path: of the file.
        field: a column that must be there; None takes any.

    Raises:
        DataError: it is no such file, or has no such column.
        MissingExtra: pyarrow is not installed.
    """

    def __init__(self, path: Path, field: str | None = None) -> None:
        try:
            import pyarrow as pa
            import pyarrow.parquet as pq
        except ImportError:
            raise MissingExtra("pyarrow", "parquet") from None
        try:
            self.file = pq.ParquetFile(path)
        except (pa.ArrowInvalid, OSError) as e:
            raise DataError(f"{path} is not a parquet file: {first_line(e)}") from None
        self.schema, self.types, self.broken = self.file.schema_arrow, pa.types, (pa.ArrowInvalid, OSError)
        self.name, self.total = str(path), self.file.metadata.num_rows
        self.columns = list(self.schema.names)
        self.field = TEXT if field is None else pick(path, field, self.columns)

    def __iter__(self) -> Iterator[Record]:
        try:
            for batch in self.file.iter_batches(BATCH, columns=list(dict.fromkeys(self.columns))):
                for row in range(batch.num_rows):
                    self.at += 1
                    yield self._record(batch, row)
        except self.broken as e:
            raise DataError(f"{self.name} cannot be read beyond row {self.at}: {first_line(e)}") from None

    def _record(self, batch: Any, row: int) -> Record:
        try:
            return Record(self.at, {name: batch.column(name)[row].as_py() for name in self.columns})
        except UnicodeDecodeError as e:
            return Record(self.at, None, f"is not UTF-8: {e.reason} at byte {e.start}")

    def close(self) -> None:
        """Close the file."""
        self.file.close()


class ParquetReader(ParquetRowsReader):
    """A column of strings in a .parquet file.

    Args:
        path: of the file.
        field: which column holds the texts; None = "text", or the only one.
        beside: other columns to read.

    Raises:
        DataError: it is no such file, or has no such column of strings.
        MissingExtra: pyarrow is not installed.
    """

    def __init__(self, path: Path, field: str | None = None, beside: Sequence[str] = ()) -> None:
        super().__init__(path)
        self.field = pick(path, field, self.columns)
        self.columns = [self.field, *(pick(path, name, self.columns) for name in beside)]
        for column in self.columns:
            kind = self.schema.field(column).type
            if not _is_text(self.types, kind):
                raise DataError(f"column {column!r} of {path} holds {kind}: choose a column of strings")


def pick(name: object, field: str | None, columns: Sequence[str]) -> str:
    """The column that is meant.

    Raises:
        DataError: there is none; the columns are named.

    >>> pick("a.csv", None, ["sentence"])
    'sentence'
    """
    wanted = field or (columns[0] if len(columns) == 1 else TEXT)
    if wanted not in columns:
        no_field(name, wanted, columns)
    return wanted


def first_line(error: BaseException) -> str:
    """The first line of an error's message."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def _is_text(types: Any, kind: Any) -> bool:
    if types.is_dictionary(kind):
        kind = kind.value_type
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_null(kind))
