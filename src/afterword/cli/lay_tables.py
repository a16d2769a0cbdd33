"""Lay Markdown tables out for a terminal: one that is too wide is turned, or cut into blocks of columns."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from .page import page_width, wrapped

Cells = Sequence[Sequence[str]]
DEAR = 1.5  # how many lines more a table may take if its rows keep their names, and are not numbered


def terminal() -> int | None:
    """The width of the terminal in cells; None if standard output is a file or a pipe, where Markdown stays whole."""
    return page_width() if sys.stdout.isatty() else None


def laid_out(cells: Cells, width: int | None, remark: bool = False) -> str:
    """A Markdown table; for a width that it does not fit, several.

    Of the ways that fit, the one with the fewest lines is taken: blocks of columns with the names of the rows in each,
    the same of the turned table, or one of these two with numbers for names, which are listed first.

    Args:
        cells: the header and the rows; the first cell of each is its name.
        width: in cells; None = any.
        remark: the last column is a remark, which goes with the listed name.
    """
    from ..errors import one_line
    from ..tasks.report import aligned

    whole = aligned(cells)
    if width is None or _width(whole) <= width:
        return whole
    end = -1 if remark else None
    numbers = [[str(i) if i else row[0], *row[1:end]] for i, row in enumerate(cells)]
    names = [", ".join(filter(None, (row[0], row[-1] if remark else ""))) for row in cells[1:]]
    listed = [line for i, name in enumerate(names, 1) for line in wrapped(one_line(name), width, " " * 4, f"{i:<4}")]
    ways = [(DEAR, _blocks(way, width)) for way in (numbers, _turned(numbers))]
    ways = [(dear, "\n".join([*listed, "", blocks])) for dear, blocks in ways]
    ways += [(1.0, _blocks(way, width)) for way in (cells, _turned(cells))]
    fit = [(dear * text.count("\n"), text) for dear, text in ways if _width(text) <= width]
    return min(fit)[1] if fit else ways[0][1]


def paragraph(text: str, width: int | None, indent: str = "") -> str:
    """A text on one line; for a width, in lines that break between words."""
    from ..errors import one_line

    return one_line(text) if width is None else "\n".join(wrapped(one_line(text), width, indent, ""))


def _turned(cells: Cells) -> list[list[str]]:
    return [list(column) for column in zip(*cells, strict=True)]


def _blocks(cells: Cells, width: int) -> str:
    """Tables of neighbouring columns, as many in each as fit, at least one."""
    from ..tasks.report import aligned

    return "\n\n".join(
        aligned([[row[0], *(row[i] for i in block)] for row in cells]) for block in _fitting(cells, width)
    )


def _fitting(cells: Cells, width: int) -> Iterator[list[int]]:
    from ..tasks.report import aligned

    block: list[int] = []
    for i in range(1, len(cells[0])):
        if block and _width(aligned([[row[0], *(row[k] for k in (*block, i))] for row in cells])) > width:
            yield block
            block = []
        block.append(i)
    if block:
        yield block


def _width(text: str) -> int:
    from rich.cells import cell_len

    return max(map(cell_len, text.split("\n")))
