"""Rows of delimited tables: .csv and .tsv files."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from typing import BinaryIO

from ..errors import DataError
from .lines import TEXT, USUAL_FORM, FileForm, LinesReader, Record, no_field

LONGEST = 2**24  # characters of a cell: what an unclosed quote swallows at most
DELIMITERS = {"\t": "tab"}  # the names of those that cannot be seen

Row = tuple[int, list[str] | None, str]
"""Its first line, its cells (None if they cannot be read), and its problem."""


class CsvReader(LinesReader):
    """A table with cells as in RFC 4180; its first row names its columns.

    The delimiter is that of `form`, or else `default`; if the header does not contain `default`, a comma, semicolon or
    tab that it does contain.

    Args:
        stream: open for reading bytes.
        total: its length in bytes, if known.
        field: the column with the texts; None = "text", or the only one.
        name: of the file, for errors.
        rows: read rows with any columns, so that no text column is needed unless `field` names one.
        form: its layout.
        beside: further columns that are wanted.
        default: the usual delimiter of such a file.
        tell: called with each choice that was made.

    Attributes:
        header: the names of the columns; empty for an empty file.

    Raises:
        DataError: a column is missing or appears twice, or the header cannot be read.
    """

    only_strings = True

    def __init__(
        self,
        stream: BinaryIO,
        total: int | None = None,
        field: str | None = None,
        name: str = "the input",
        *,
        rows: bool = False,
        form: FileForm = USUAL_FORM,
        beside: Sequence[str] = (),
        default: str = ",",
        tell: Callable[[str], object] = lambda _: None,
    ) -> None:
        super().__init__(stream, total, name, form)
        csv.field_size_limit(LONGEST)
        lines = self.lines(ends=True)
        first = list(islice(lines, 1))
        written = [d for d in (default, *",;\t") if first and d in first[0][1]]
        self.delimiter = form.delimiter or (written[0] if written else default)
        if form.delimiter is None and self.delimiter != default:
            tell(f"{name}: read as {DELIMITERS.get(self.delimiter, repr(self.delimiter))}-separated")
        self.rows = self._rows(chain(first, lines))
        self.header = self.columns = self._header()
        self.kinds = dict.fromkeys(beside, "text")
        self.field = field or (self.header[0] if len(self.header) == 1 and not rows else TEXT)
        needed = beside if rows and field is None else (self.field, *beside)
        for column in needed if self.header else ():
            if column not in self.header:
                no_field(name, column, self.header)
        if form.header and field is None and not rows and self.header and self.field != TEXT:
            tell(f"{name}: {self.field[:60]!r} is taken as the header, not as a text")

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
                swallowed = f", and lines {start} to {reader.line_num} are lost" if reader.line_num > start else ""
                problems.append(f"is not CSV: {e}: close its quotes, and double quotes inside quotes{swallowed}")
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
        check_columns(self.name, cells)
        return cells

    def __iter__(self) -> Iterator[Record]:
        wide = len(self.header)
        for line, cells, problem in self.rows:
            if cells == []:
                cells, problem = [""], "is a blank line"
            if cells is not None and len(cells) == wide:
                yield Record(line, dict(zip(self.header, cells, strict=True)))
            else:
                yield Record(line, None, problem or f"has {len(cells or '')} fields, not {wide}")


def check_columns(name: object, columns: Sequence[str]) -> None:
    """Raise a DataError if two columns have the same name; columns without a name are allowed."""
    twice = list(dict.fromkeys(column for column in columns if column and columns.count(column) > 1))
    if twice:
        raise DataError(f"{name} has two columns named {', '.join(map(repr, twice))}: rename one")
