"""Tables and paragraphs that fit the terminal, and Markdown tables when the output is a file or a pipe."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ..errors import one_line

if TYPE_CHECKING:
    from ..papers.measurement import Table as Measured

PIPE = 160  # width of the output in cells, if it is not a terminal
NARROWEST = 20  # minimum page width
GAP = 2  # spaces between columns
TEXT = 12  # minimum width of a text column in cells, if scores can be moved to another table to make room
LONGEST = 30  # maximum length of a name that shares a line with its description


def page_width() -> int:
    """The width of the terminal in cells, or `PIPE` if there is none. COLUMNS overrides it."""
    return max(shutil.get_terminal_size((PIPE, 24)).columns, NARROWEST)


def terminal() -> int | None:
    """The width of the terminal in cells; None if standard output is a file or a pipe."""
    return page_width() if sys.stdout.isatty() else None


def wrapped(text: str, width: int, indent: str = "", first: str | None = None) -> list[str]:
    """Wrap a text into lines of at most `width` characters, without breaking at hyphens."""
    head = indent if first is None else first
    return textwrap.wrap(text, width, initial_indent=head, subsequent_indent=indent, break_on_hyphens=False) or [head]


def definitions(rows: Sequence[tuple[str, str]], width: int, indent: str = "") -> list[str]:
    """Format names and their descriptions in two columns; a long name gets a separate line."""
    column = min(len(indent) + min(max(len(name) for name, _ in rows), LONGEST) + GAP, width // 2)
    lines: list[str] = []
    for name, meaning in rows:
        head = f"{indent}{name}".ljust(column)
        if len(head) > column:
            lines.append(head)
            head = " " * column
        lines += wrapped(meaning, width, " " * column, head)
    return lines


def paragraph(text: str, width: int | None, indent: str = "") -> str:
    """Put a text on one line, or wrap it to a width."""
    return one_line(text) if width is None else "\n".join(wrapped(one_line(text), width, indent, ""))


@dataclass(frozen=True)
class Column:
    """A column of a table, with n cells.

    Attributes:
        cells: the n cells.
        kind: "label" and "score" are aligned to the right and never cut; "text" is cut to the remaining width.
        head: the heading.
    """

    cells: Sequence[str]
    kind: Literal["label", "score", "text"]
    head: str = ""


def table(columns: Sequence[Column], width: int) -> list[str]:
    """Format a table as lines of at most `width` cells. Scores that do not fit follow in another table.

    >>> table([Column(["0.533", "-0.030"], "score"), Column(["a cat sat down", "no"], "text")], 20)
    [' 0.533  a cat sat d…', '-0.030  no']
    """
    needed = [_widest(c) if c.kind != "text" else min(_widest(c), TEXT) for c in columns]
    left = width - sum(n + GAP for n, c in zip(needed, columns, strict=True) if c.kind != "score") + GAP
    scores = [i for i, c in enumerate(columns) if c.kind == "score"]
    lines: list[str] = []
    for block in _blocks(scores, needed, left):
        lines += [""] * bool(lines)
        lines += _laid_out([c for i, c in enumerate(columns) if c.kind != "score" or i in block], width)
    return lines


def measured(tables: Iterable[Measured], width: int) -> Iterator[str]:
    """Format tables from `afterword.papers` as lines of at most `width` cells, with a blank line between tables."""
    for i, one in enumerate(tables):
        yield from [""] * (i > 0)
        yield from one.title
        if one.rows:
            heads = max(one.rows, key=len)
            columns = [
                Column([row.get(head, "") for row in one.rows], "text" if k < one.names else "score", head.strip())
                for k, head in enumerate(heads)
            ]
            yield from table(columns, width)
        yield from one.notes


def laid_out(cells: Sequence[Sequence[str]], width: int | None) -> str:
    """Format a table of names and scores: as Markdown without a width, otherwise as lines of at most `width` cells.

    Args:
        cells: the header and the rows; the first cell of each is its name.
        width: in cells, from `terminal`.
    """
    from ..tasks.results import aligned as as_markdown

    if width is None:
        return as_markdown(cells)
    head, *rows = cells
    columns = [Column([row[i] for row in rows], "score" if i else "text", name) for i, name in enumerate(head)]
    return "\n".join(table(columns, width))


def _widest(column: Column) -> int:
    from rich.cells import cell_len

    return max(cell_len(one_line(cell)) for cell in [column.head, *column.cells])


def _blocks(scores: Sequence[int], widths: Sequence[int], room: int) -> Iterator[list[int]]:
    """Group neighbouring columns into blocks that fit the width; without columns, yield one empty block."""
    block: list[int] = []
    for i in scores:
        if block and sum(widths[k] + GAP for k in [*block, i]) > room:
            yield block
            block = []
        block.append(i)
    yield block


def _laid_out(columns: Sequence[Column], width: int) -> list[str]:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    def cell(text: str) -> Text:
        return Text(one_line(text), no_wrap=True, overflow="ellipsis")

    laid = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), show_header=any(c.head for c in columns))
    for column in columns:
        number = column.kind != "text"
        laid.add_column(
            cell(column.head), justify="right" if number else "left", no_wrap=number,
            min_width=_widest(column) if number else None,
        )  # fmt: skip
    for row in zip(*(c.cells for c in columns), strict=True):
        laid.add_row(*map(cell, row))
    console = Console(width=width, height=laid.row_count + 1, color_system=None, force_terminal=False, markup=False)
    with console.capture() as captured:
        console.print(laid)
    return [line.rstrip(" ") for line in captured.get().splitlines()]
