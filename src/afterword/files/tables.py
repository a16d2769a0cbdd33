"""Rows of delimited tables: .csv and .tsv files, and their likes."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Sequence

from ..errors import DataError
from .lines import LONGEST, TEXT, USUAL_FORM, FileForm, LinesReader, Record, Stream, no_field
from .quoted import Cells, Records

DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
"""What is tried, and what it is called."""


class CsvReader(LinesReader):
    """A table with cells as RFC 4180 has them; its first row names its columns.

    The delimiter is the one that `FileForm` says, or the first under which the header has the wanted column; else
    `default`, or if it does not divide the header, the one that gives most columns. A first line ``sep=;``, which Excel
    reads, says it too.

    Args:
        stream: open for reading bytes.
        total: its length in bytes, where it is known.
        field: which column holds the texts; None = "text", or the only one.
        name: of the file, for errors.
        rows: whole rows are read, so that without `field` any columns will do.
        form: how the file is written.
        beside: other columns that must be there.
        default: the delimiter that is tried first.
        tell: called with what was guessed.

    Attributes:
        header: the names of the columns; empty for an empty file.

    Raises:
        DataError: it has no such column, two columns of one name, or a header that cannot be read.
    """

    only_strings = True

    def __init__(
        self,
        stream: Stream,
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
        csv.field_size_limit(2 * LONGEST)  # a record is cut off before
        self.records = Records(self.lines(ends=True))
        wanted = field if field is not None or rows or not form.header else TEXT
        self.records.delimiter = self.delimiter = self._delimiter(wanted, default, tell)
        self.header = self.columns = self._header()
        self.kinds = dict.fromkeys(beside, "text")
        self.field = TEXT if rows and field is None else field or (self.header[0] if len(self.header) == 1 else TEXT)
        needed = beside if rows and field is None else (self.field, *beside)
        for column in needed if self.header else ():
            if column not in self.header:
                no_field(name, column, self.header, self._hint(column))
        if form.options and form.header and field is None and not rows and self.header and self.field != TEXT:
            tell(f"{name}: {self.field[:60]!r} is taken as the name of the column; --no-header takes it as a text")

    def _delimiter(self, wanted: str | None, default: str, tell: Callable[[str], object]) -> str:
        first = self.records.take()
        said = None if first is None else re.fullmatch("sep=(.)", first[1].rstrip("\r\n"), re.IGNORECASE)
        if first is not None and said is None:
            self.records.again.appendleft(first)
        if said is not None or self.form.delimiter is not None:
            return self.form.delimiter or (said[1] if said is not None else default)
        found: dict[str, list[str]] = {}
        for delimiter in (default, *DELIMITERS):
            if delimiter not in found and (cells := self.records.ahead(delimiter)) is not None:
                found[delimiter] = self._names(cells)
        named = [delimiter for delimiter, names in found.items() if wanted in names]
        if named:
            best = named[0]
        else:
            divides = default in found and len(found[default]) > 1
            best = default if divides or not found else max(found, key=lambda d: (len(found[d]), d == default))
        if best != default:
            tell(f"{self.name}: read as {spoken(best)}-separated")
        return best

    def _names(self, cells: list[str]) -> list[str]:
        """The names of columns: the cells of the header, or else numbers from 1."""
        if self.form.header:
            return cells
        return [TEXT] if len(cells) <= 1 else [str(i + 1) for i in range(len(cells))]

    def _header(self) -> list[str]:
        if not self.form.header:
            cells = self.records.ahead(self.delimiter)
            return [] if cells is None else self._names(cells)
        first = next(iter(self.records), None)
        if first is None:
            return []
        if first.cells is None:
            raise DataError(f"{self.name} has a header that cannot be read: line {first.line} {first.problem}")
        if not first.cells:
            raise DataError(f"{self.name} has no header: line {first.line} is blank")
        check_columns(self.name, first.cells, self.form)
        return first.cells

    def _hint(self, column: str) -> str:
        if column != self.field:
            return ""
        return self.form.hint(
            "; choose one with --column, or the character between columns with --delimiter"
            + (", or say --no-header if these are no names" if self.form.header else "")
        )

    def __iter__(self) -> Iterator[Record]:
        for row in self.records:
            yield self._record(row)

    def _record(self, row: Cells) -> Record:
        cells, wide = row.cells, len(self.header)
        if cells is None:
            return Record(row.line, None, row.problem)
        if not cells and wide > 1:
            return Record(row.line, None, "is a blank line")
        cells = cells or [""]
        if len(cells) != wide:
            many = f"has {len(cells)} field{'s' * (len(cells) != 1)}"
            where = f" (lines {row.line} to {row.last})" if row.last > row.line else ""
            split = DELIMITERS.get(self.delimiter, repr(self.delimiter))
            fix = f"put texts with {split} in double quotes" if len(cells) > wide else "one is missing"
            first = "the header has" if self.form.header else "the first row has"
            return Record(row.line, None, f"{many}{where}, {first} {wide}: {fix}")
        return Record(row.line, dict(zip(self.header, cells, strict=True)))


def spoken(delimiter: str) -> str:
    r"""A delimiter in a message.

    >>> spoken(";"), spoken("\t")
    ("';'", 'tab')
    """
    return "tab" if delimiter == "\t" else repr(delimiter)


def check_columns(name: object, columns: Sequence[str], form: FileForm = USUAL_FORM) -> None:
    """Raise a DataError if two columns have the same name; those without a name may have none."""
    twice = list(dict.fromkeys(column for column in columns if column and columns.count(column) > 1))
    if twice:
        raise DataError(
            f"{name} has two columns named {', '.join(map(repr, twice))}: rename one"
            + form.hint(", or say --no-header if the first row is no header")
        )
