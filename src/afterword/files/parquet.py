"""Rows of .parquet files, read in batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..errors import DataError
from .lines import TEXT, Reader, Record, no_field
from .tables import check_columns

BATCH = 1024  # rows in memory


class ParquetRowsReader(Reader):
    """All columns of a .parquet file, of any type.

    Args:
        path: of the file.
        field: a column that must be there; None = any.
        beside: further columns that must be there.

    Raises:
        DataError: it is not such a file, lacks a column, or has two columns of one name.
    """

    def __init__(self, path: Path, field: str | None = None, beside: Sequence[str] = ()) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self.broken, self.is_dictionary = (pa.ArrowInvalid, OSError), pa.types.is_dictionary
        try:
            self.file = pq.ParquetFile(path)
        except self.broken as e:
            raise DataError(f"{path} is not a parquet file: {first_line(e)}") from None
        self.name, self.total, self.schema = str(path), self.file.metadata.num_rows, self.file.schema_arrow
        self.columns = list(self.schema.names)
        check_columns(path, self.columns)
        for column in (*([field] if field else []), *beside):
            if column not in self.columns:
                no_field(path, column, self.columns)
        self.field = field or TEXT
        self.kinds = {column: self.schema.field(column).type for column in beside}

    def __iter__(self) -> Iterator[Record]:
        try:
            for batch in self.file.iter_batches(BATCH, columns=self.columns):
                for row in range(batch.num_rows):
                    self.at += 1
                    yield Record(self.at, {name: value_of(batch.column(name)[row]) for name in self.columns})
        except self.broken as e:
            raise DataError(f"{self.name} cannot be read after row {self.at}: {first_line(e)}") from None

    def close(self) -> None:
        """Close the file."""
        self.file.close()


class ParquetReader(ParquetRowsReader):
    """A column of strings in a .parquet file, and further columns.

    Args:
        path: of the file.
        field: the column with the texts; None = "text", or the only one.
        beside: further columns to read, of any type.

    Raises:
        DataError: it is not such a file, lacks a column, or the texts are not strings.
    """

    def __init__(self, path: Path, field: str | None = None, beside: Sequence[str] = ()) -> None:
        super().__init__(path, None, beside)
        self.field = field or (self.columns[0] if len(self.columns) == 1 else TEXT)
        if self.field not in self.columns:
            no_field(path, self.field, self.columns)
        kind = self.schema.field(self.field).type
        if str(kind.value_type if self.is_dictionary(kind) else kind) not in (
            "string",
            "large_string",
            "string_view",
            "null",
        ):
            raise DataError(f"column {self.field!r} of {path} holds {kind}: choose a column of strings")
        self.columns = list(dict.fromkeys([self.field, *beside]))


def first_line(error: BaseException) -> str:
    """The first line of an error's message."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def value_of(scalar: Any) -> Any:
    """An Arrow value in Python; a time in nanoseconds, which needs pandas, as its integer."""
    try:
        return scalar.as_py()
    except ValueError:
        return scalar.value
