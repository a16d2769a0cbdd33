"""Records of a table from its lines: cells in quotes may hold line ends, and a quote may be missing."""

from __future__ import annotations

import csv
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

LONG = 2**24  # characters of a record of several lines at most: the csv module takes eight bytes for each

Line = tuple[int, str, str | None]
"""Its number, the line with its end, and its problem."""


@dataclass(frozen=True, slots=True)
class Cells:
    """The cells of a record.

    Attributes:
        line: where it begins.
        last: where it ends.
        cells: the cells; None where the record cannot be read.
        problem: why not.
    """

    line: int
    last: int
    cells: list[str] | None
    problem: str | None = None


class Records:
    r"""Records, read by Python's csv module in its strict mode.

    Where a quote is not closed, only the line that it is in is lost: the lines after it are read again. At the end of a
    line the module is either between two records or inside quotes. So two readings that are both inside quotes at the
    end of a line go on alike, and no line is read more than three times.

    Args:
        lines: the lines of the table.
        delimiter: the character between two cells.

    >>> lines = enumerate(['a,"b\n', 'c,d\n'], 1)
    >>> [(r.line, r.cells) for r in Records((n, text, None) for n, text in lines)]
    [(1, None), (2, ['c', 'd'])]
    """

    def __init__(self, lines: Iterator[Line], delimiter: str = ",") -> None:
        self.lines, self.delimiter = lines, delimiter
        self.again = deque[Line]()
        self.hopeless = 0  # quotes that are open at the end of a line before this one are never closed

    def __iter__(self) -> Iterator[Cells]:
        while (first := self.take()) is not None:
            cells, taken = self._read(first, self.delimiter)
            if cells.last == cells.line:  # then what was read behind it, in vain, is read again
                self.again.extendleft(reversed(taken[1:]))
            yield cells

    def take(self) -> Line | None:
        """The next line, which is then read no more; None at the end."""
        return self.again.popleft() if self.again else next(self.lines, None)

    def ahead(self, delimiter: str) -> list[str] | None:
        """The cells of the next record, which is read again; None where there is none for this delimiter."""
        hopeless, first = self.hopeless, self.take()
        if first is None:
            return None
        cells, taken = self._read(first, delimiter)
        self.again.extendleft(reversed(taken))
        self.hopeless = hopeless
        return cells.cells

    def _read(self, first: Line, delimiter: str) -> tuple[Cells, list[Line]]:
        """A record, and the lines that were read for it."""
        taken, problem = [first], ""

        def feed() -> Iterator[str]:
            nonlocal problem
            yield first[1]
            problem, size = "has a quote that is not closed", len(first[1])  # the module asks for more
            while first[0] >= self.hopeless and size <= LONG and (line := self.take()) is not None:
                taken.append(line)
                size += len(line[1])
                yield line[1]
            if size <= LONG:
                self.hopeless = max(self.hopeless, taken[-1][0] + 1)
            else:
                problem += f" within {LONG:,} characters"

        try:
            cells = next(csv.reader(feed(), delimiter=delimiter, strict=True))
        except csv.Error as e:
            self.hopeless = max(self.hopeless, taken[-1][0])
            problem = first[2] or problem or f"is not CSV: {_plain(first[1], e)}"
            return Cells(first[0], first[0], None, problem), taken
        wrong = next((problem for _, _, problem in taken if problem), None)
        return Cells(first[0], taken[-1][0], cells if wrong is None else None, wrong), taken


def _plain(line: str, error: csv.Error) -> str:
    if "\r" in line.rstrip("\r\n"):
        return "a carriage return is outside quotes: save the table with line feeds as line ends"
    return f'{error}: write a quote inside quotes twice ("")'
