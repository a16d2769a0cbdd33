"""Lay Markdown tables out for a terminal: one that is too wide is transposed, or cut into blocks of columns."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from .page import page_width, wrapped

Cells = Sequence[Sequence[str]]


def terminal() -> int | None:
    """The width of the terminal in cells; None if standard output is a file or a pipe, where tables stay Markdown."""
    return page_width() if sys.stdout.isatty() else None


def laid_out(cells: Cells, width: int | None) -> str:
    """A Markdown table; if it is wider than the terminal, tables of neighbouring columns, or of the transposed table.

    Args:
        cells: the header and the rows; the first cell of each is its name.
        width: in cells; None = unlimited.
    """
    from ..tasks.report import aligned

    if width is None or _width(aligned(cells)) <= width:
        return aligned(cells)
    ways = (_blocks(cells, width), _blocks([list(column) for column in zip(*cells, strict=True)], width))
    return min(ways, key=lambda text: (_width(text) > width, text.count("\n")))


def paragraph(text: str, width: int | None, indent: str = "") -> str:
    """A text on one line; for a width, in lines that break between words."""
    from ..errors import one_line

    return one_line(text) if width is None else "\n".join(wrapped(one_line(text), width, indent, ""))


def _blocks(cells: Cells, width: int) -> str:
    """Tables of neighbouring columns, as many in each as fit, at least one."""
    from ..tasks.report import aligned

    blocks: list[str] = []
    first = 1
    while first < len(cells[0]):
        end = len(cells[0])
        while end > first + 1 and _width(aligned([[row[0], *row[first:end]] for row in cells])) > width:
            end -= 1
        blocks.append(aligned([[row[0], *row[first:end]] for row in cells]))
        first = end
    return "\n\n".join(blocks)


def _width(text: str) -> int:
    from rich.cells import cell_len

    return max(map(cell_len, text.split("\n")))
