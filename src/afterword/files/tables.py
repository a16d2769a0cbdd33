"""Readers of tables, one row at a time: .csv, .tsv and .parquet files."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO

from ..errors import DataError
from .lines import TEXT, USUAL_FORM, FileForm, LinesReader, Reader, Record

LONGEST = 2**24  # maximum number of characters of a cell: an unclosed quote takes no more
BATCH = 1024  # rows of a .parquet file in memory

Row = tuple[int, list[str] | None, str]
"""Its first line, its cells (None if they cannot be read), and its problem."""


class CsvReader(LinesReader):
    """A table with cells as in RFC 4180; its first row names its columns.

    The delimiter is that of `form`, or else `default`; if the header does not contain `default`, a comma, semicolon or
    tab that it does contain.

    Args:
        stream, name, form: as for `LinesReader`.
        default: the usual delimiter of such a file.
        tell: called with the delimiter that was chosen, if it is not the usual one.

    Raises:
        DataError: the header cannot be read.
    """

    only_strings = True

    def __init__(
        self,
        stream: BinaryIO,
        name: str = "the input",
        form: FileForm = USUAL_FORM,
        default: str = ",",
        tell: Callable[[str], object] = lambda _: None,
    ) -> None:
        super().__init__(stream, name, form)
        csv.field_size_limit(LONGEST)
        lines = self.lines(ends=True)
        first = list(islice(lines, 1))
        present = [d for d in (default, *",;\t") if first and d in first[0][1]]
        self.delimiter = form.delimiter or (present[0] if present else default)
        if form.delimiter is None and self.delimiter != default:
            visible = "tab" if self.delimiter == "\t" else repr(self.delimiter)
            tell(f"{name}: read as {visible}-separated")
        self.rows = self._rows(chain(first, lines))
        self.columns = self._header()

    def kind(self, column: str) -> Any:
        """The type of a column, as for `Reader.kinds`."""
        return "text"

    def _rows(self, lines: Iterator[tuple[int, str, str | None]]) -> Iterator[Row]:
        problems: list[str] = []

        def feed() -> Iterator[str]:
            for _, text, problem in lines:
                problems.extend([problem] if problem else [])
                yield text

        reader = csv.reader(feed(), delimiter=self.delimiter, strict=True)
        while True:
            start, cells = reader.line_num + 1, None
            problems.clear()
            try:
                cells = next(reader)
            except StopIteration:
                return
            except csv.Error as e:
                lost = f", and lines {start} to {reader.line_num} are lost" if reader.line_num > start else ""
                problems.append(f"is not CSV: {e}: close its quotes, and double quotes inside quotes{lost}")
            yield start, None if problems else cells, "; ".join(problems)

    def _header(self) -> list[str]:
        """The names of the columns: the cells of the first row, or numbers from 1."""
        first = next(self.rows, None)
        if first is None:
            return []
        line, cells, problem = first
        if not self.form.header:
            self.rows = chain([first], self.rows)
            count = len(cells or "")
            return [TEXT] if count <= 1 else [str(i + 1) for i in range(count)]
        if not cells:
            raise DataError(f"{self.name} has no header: line {line} {problem or 'is blank'}")
        return cells

    def __iter__(self) -> Iterator[Record]:
        width = len(self.columns)
        for line, cells, problem in self.rows:
            if cells == []:
                cells, problem = [""], "is a blank line"
            if cells is not None and len(cells) == width:
                yield Record(line, dict(zip(self.columns, cells, strict=True)))
            else:
                yield Record(line, None, problem or f"has {len(cells or '')} fields, not {width}")


class ParquetReader(Reader):
    """The columns of a .parquet file, of any type.

    Raises:
        DataError: it is not such a file.
    """

    def __init__(self, path: Path) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self.name, self.damage, self.is_dictionary = str(path), (pa.ArrowInvalid, OSError), pa.types.is_dictionary
        try:
            self.file = pq.ParquetFile(path)
        except self.damage as e:
            raise DataError(f"{path} is not a parquet file: {first_line(e)}") from None
        self.total, self.columns = self.file.metadata.num_rows, list(self.file.schema_arrow.names)

    def kind(self, column: str) -> Any:
        """The Arrow type of a column."""
        return self.file.schema_arrow.field(column).type

    def read_only(self, field: str, keep: Sequence[str]) -> None:
        """Read the column of the texts, which must be strings, and some further columns."""
        kind = self.kind(field)
        value = kind.value_type if self.is_dictionary(kind) else kind
        if str(value) not in ("string", "large_string", "string_view", "null"):
            raise DataError(f"column {field!r} of {self.name} holds {kind}: choose a column of strings")
        self.columns = list(dict.fromkeys([field, *keep]))

    def __iter__(self) -> Iterator[Record]:
        try:
            for batch in self.file.iter_batches(BATCH, columns=self.columns):
                for row in range(batch.num_rows):
                    self.at += 1
                    yield Record(self.at, {name: value_of(batch.column(name)[row]) for name in self.columns})
        except self.damage as e:
            raise DataError(f"{self.name} cannot be read after row {self.at}: {first_line(e)}") from None

    def close(self) -> None:
        """Close the file."""
        self.file.close()


def first_line(error: BaseException) -> str:
    """The first line of an error's message."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def value_of(scalar: Any) -> Any:
    """An Arrow value in Python; a time in nanoseconds, which needs pandas, as its integer."""
    try:
        return scalar.as_py()
    except ValueError:
        return scalar.value
