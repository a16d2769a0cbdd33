"""Lay text out for a terminal of any width: cut and wrap it, align columns, make headings bold and errors red."""

from __future__ import annotations

import os
import shutil
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TextIO

PIPE = 160  # width of the output in cells, if it is not a terminal
NARROWEST = 20  # width of the narrowest page
GAP = 2  # spaces between columns
TEXT = 12  # width in cells that a column of texts gets at least, if scores can be moved to another table for it

JOINERS = "\u200c\u200d"
"""The zero-width non-joiner and joiner, which are not printable by Python's account."""
BOLD, RED, YELLOW = "1", "31", "33"


def page_width(most: int | None = None) -> int:
    """The width of the terminal in cells, or `PIPE` if there is none; not more than `most`. COLUMNS overrides it."""
    width = max(shutil.get_terminal_size((PIPE, 24)).columns, NARROWEST)
    return width if most is None else min(width, most)


def styled(text: str, style: str, stream: TextIO) -> str:
    """The text in a style if the stream is a terminal with colours, which NO_COLOR turns off.

    >>> import io
    >>> styled("error:", RED, io.StringIO())
    'error:'
    """
    return f"\x1b[{style}m{text}\x1b[0m" if has_colours(stream) else text


def has_colours(stream: TextIO) -> bool:
    """Whether the stream is a terminal with colours, which NO_COLOR turns off.

    >>> import io
    >>> has_colours(io.StringIO())
    False
    """
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb" and stream.isatty()


def wrapped(text: str, width: int, indent: str = "", first: str | None = None) -> list[str]:
    """Lines of at most `width` characters that break between words; only a word that is longer is broken."""
    head = indent if first is None else first
    return textwrap.wrap(text, width, initial_indent=head, subsequent_indent=indent, break_on_hyphens=False) or [head]


def one_line(text: str) -> str:
    r"""A text on one line, without characters that a terminal would obey.

    Joiners stay: Persian, Indic scripts and emoji have them.

    >>> one_line("a\nb\x1b[31m")
    'a b\ufffd[31m'
    """
    line = " ".join(text.split())
    return "".join(c if c.isprintable() or c in JOINERS else "\N{REPLACEMENT CHARACTER}" for c in line)


def cut(text: str, cells: int) -> str:
    """A text on one line, cut to the width: a Chinese character takes two cells, a combining mark none.

    >>> cut("a cat sat down", 8), cut("每个词都回头看", 8)
    ('a cat s…', '每个词…')
    """
    from rich.cells import cell_len, set_cell_size

    line = one_line(text)
    if cell_len(line) <= cells:
        return line
    return set_cell_size(line, cells - 1).rstrip(" " + JOINERS) + "…" if cells > 0 else ""


@dataclass(frozen=True)
class Column:
    """A column of a table, with n cells.

    Attributes:
        cells: the n cells.
        kind: "label" and "score" are never cut, and stand at the right of their column; "text" is cut to what is left.
        head: the heading.
    """

    cells: Sequence[str]
    kind: Literal["label", "score", "text"]
    head: str = ""


def table(columns: Sequence[Column], width: int) -> list[str]:
    """Lines of at most `width` cells. Scores that do not fit beside each other follow in a second table.

    >>> table([Column(["0.533", "-0.030"], "score"), Column(["a cat sat down", "no"], "text")], 20)
    [' 0.533  a cat sat d…', '-0.030  no']
    """
    from rich.cells import cell_len

    widest = [max(map(cell_len, [one_line(cell) for cell in c.cells] + [c.head]), default=0) for c in columns]
    needed = [min(w, TEXT) if c.kind == "text" else w for c, w in zip(columns, widest, strict=True)]
    beside = sum(needed[i] + GAP for i, c in enumerate(columns) if c.kind != "score") - GAP
    scores = [i for i, c in enumerate(columns) if c.kind == "score"]
    lines: list[str] = []
    for part in _parts([widest[i] + GAP for i in scores], width - beside):
        shown = [i for i, c in enumerate(columns) if c.kind != "score" or i in {scores[k] for k in part}]
        texts = [i for i in shown if columns[i].kind == "text"]
        left = width - sum(widest[i] for i in shown if i not in texts) - GAP * (len(shown) - 1)
        widths = dict(enumerate(widest)) | dict(zip(texts, _shared([widest[i] for i in texts], left), strict=True))
        lines += [""] * bool(lines)
        lines += _rows([columns[i] for i in shown], [widths[i] for i in shown])
    return lines


def aligned(rows: Sequence[Mapping[str, str]], names: int = 1) -> list[str]:
    """Lines for rows of cells by heading: the first `names` columns are texts, and the others scores.

    >>> aligned([{"": "a", "mean": "0.1"}, {"": "bb", "mean": "10.2"}])
    ['    mean', 'a    0.1', 'bb  10.2']
    """
    heads = max(rows, key=len)
    columns = [
        Column([row.get(head, "") for row in rows], "text" if i < names else "score", head.strip())
        for i, head in enumerate(heads)
    ]
    return table(columns, page_width())


def _parts(widths: Sequence[int], room: int) -> Iterator[list[int]]:
    """Numbers of neighbouring columns that fit into the room together, at least one at a time; one part if none."""
    part: list[int] = []
    held = 0
    for i, width in enumerate(widths):
        if part and held + width > room:
            yield part
            part, held = [], 0
        part.append(i)
        held += width
    yield part


def _shared(widths: Sequence[int], room: int) -> list[int]:
    """The room, shared among columns: a narrow one takes what it needs, wide ones the same each."""
    shares = [0] * len(widths)
    for done, i in enumerate(sorted(range(len(widths)), key=lambda i: widths[i])):
        shares[i] = min(widths[i], max(room // (len(widths) - done), 1))
        room -= shares[i]
    return shares


def _rows(columns: Sequence[Column], widths: Sequence[int]) -> Iterator[str]:
    from rich.cells import cell_len

    rows = list(zip(*(c.cells for c in columns), strict=True))
    for row in ([tuple(c.head for c in columns)] if any(c.head for c in columns) else []) + rows:
        line = ""
        for column, width, cell in zip(columns, widths, row, strict=True):
            text = cut(cell, width) if column.kind == "text" else one_line(cell)
            space = " " * (width - cell_len(text))
            line += (text + space if column.kind == "text" else space + text) + " " * GAP
        yield line.rstrip(" ")
