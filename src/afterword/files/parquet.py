"""Rows of .parquet files, a few at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..errors import DataError, MissingExtra
from .lines import TEXT, USUAL_FORM, FileForm, Reader, Record, no_field
from .tables import check_columns

BATCH = 1024  # rows of a file that are held at once


class ParquetRowsReader(Reader):
    """All columns of a .parquet file, of any type.

    Args:
        path: of the file.
        field: a column that must be there; None takes any.
        form: says whether errors may name options.
        beside: other columns that must be there.

    Raises:
        DataError: it is no such file, has no such column, or two columns of one name.
        MissingExtra: pyarrow is not installed.
    """

    def __init__(
        self, path: Path, field: str | None = None, form: FileForm = USUAL_FORM, beside: Sequence[str] = ()
    ) -> None:
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
        self.name, self.total, self.form = str(path), self.file.metadata.num_rows, form
        self.columns = list(self.schema.names)
        check_columns(path, self.columns)
        self.field = TEXT if field is None else self.find(field)
        self.kinds = {name: self.schema.field(self.find(name)).type for name in beside}

    def find(self, column: str, hint: str = "") -> str:
        """A column; raises a DataError if there is none of that name."""
        if column not in self.schema.names:
            no_field(self.name, column, self.schema.names, hint)
        return column

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
            return Record(self.at, {name: value_of(batch.column(name)[row]) for name in self.columns})
        except UnicodeDecodeError as e:
            return Record(self.at, None, f"is not UTF-8: {e.reason} at byte {e.start}")

    def close(self) -> None:
        """Close the file."""
        self.file.close()


class ParquetReader(ParquetRowsReader):
    """A column of strings in a .parquet file, and other columns beside it.

    Args:
        path: of the file.
        field: which column holds the texts; None = "text", or the only one.
        beside: other columns to read, of any type.
        form: says whether errors may name options.

    Raises:
        DataError: it is no such file, has no such column, or the texts are no strings.
        MissingExtra: pyarrow is not installed.
    """

    def __init__(
        self, path: Path, field: str | None = None, beside: Sequence[str] = (), form: FileForm = USUAL_FORM
    ) -> None:
        super().__init__(path, None, form, beside)
        only = self.columns[0] if len(self.columns) == 1 else TEXT
        self.field = self.find(field or only, form.hint("; choose one with --column"))
        self.columns = list(dict.fromkeys([self.field, *beside]))
        kind = self.schema.field(self.field).type
        if not _is_text(self.types, kind):
            raise DataError(f"column {self.field!r} of {path} holds {kind}: choose a column of strings")


def first_line(error: BaseException) -> str:
    """The first line of an error's message."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def value_of(scalar: Any) -> Any:
    """A value as Python has it; one in nanoseconds, which Python's own types cannot hold, as their number.

    Raises:
        DataError: such a value is inside another, and pandas, which can hold it, is not installed.
    """
    try:
        return scalar.as_py()
    except UnicodeDecodeError:
        raise
    except ValueError as e:
        if not hasattr(scalar, "value"):
            raise DataError(f"a value of type {scalar.type} cannot be read without pandas: {first_line(e)}") from None
        return scalar.value


def _is_text(types: Any, kind: Any) -> bool:
    if types.is_dictionary(kind):
        kind = kind.value_type
    return bool(
        types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind) or types.is_null(kind)
    )
