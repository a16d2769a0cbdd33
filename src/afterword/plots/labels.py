"""Text in figures: names as they are, lines that fit the width, and names at the ends of lines."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .colours import Page, readable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH = 0.56
"""The mean width of a letter, as a share of the font's size; a Chinese character is one whole size wide."""


@dataclass(frozen=True)
class End:
    """A name to write at the end of a line.

    Attributes:
        x: the last point.
        y: its height.
        name: what is written beside it.
        colour: of the line; the text is as dark or light as it must be to be read.
    """

    x: float
    y: float
    name: str
    colour: str


def literal(text: str, most: int = 60) -> str:
    r"""A name on one line, without characters that no font draws or that break an .svg; a long one is cut.

    >>> literal("a\nb\x1b[31m$x$")
    'a b\ufffd[31m$x$'
    """
    line = "".join(map(_drawable, " ".join(text.split())))
    return line if len(line) <= most else f"{line[: most - 1]}…"


def _drawable(character: str) -> str:
    kind = unicodedata.category(character)
    return "" if kind == "Cf" else "\ufffd" if kind in ("Cc", "Cs", "Cn", "Zl", "Zp") else character


def wrapped(text: str, inches: float, size: float) -> list[str]:
    """Text in lines that fit a width, by the mean width of letters.

    Args:
        text: words; a word wider than the line is cut.
        inches: the width.
        size: of the font, in points.
    """
    room, lines = 72 * inches / size, [""]
    for word in text.split():
        if lines[-1] and length(f"{lines[-1]} {word}") > room:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
        while length(lines[-1]) > room and len(lines[-1]) > 1:
            fit = max(k for k in range(1, len(lines[-1])) if k == 1 or length(lines[-1][:k]) <= room)
            lines[-1:] = [lines[-1][:fit], lines[-1][fit:]]
    return [line for line in lines if line]


def length(text: str) -> float:
    """The width of a line, in sizes of its font."""
    return sum(1.0 if unicodedata.east_asian_width(c) in "WF" else WIDTH for c in text)


def label_ends(axes: Axes, ends: Sequence[End], page: Page, size: float = 8.5) -> None:
    """Write names to the right of the axes, each beside the end of its line and none over another.

    Call it when everything else is drawn and the limits of the axes are final.

    Args:
        axes: has the lines.
        ends: the names, and where their lines end.
        page: the page's colours.
        size: of the font, in points.
    """
    figure = axes.get_figure(root=True)
    assert figure is not None
    figure.draw_without_rendering()  # the height of the axes is known only then
    (low, high), box = axes.get_ylim(), axes.get_window_extent()
    step = (high - low) * 1.25 * size / 72 * figure.dpi / box.height
    heights = spread([end.y for end in ends], step, low, high)
    right = axes.get_xlim()[1]
    for end, height in zip(ends, heights, strict=True):
        line = {"arrowstyle": "-", "color": end.colour, "linewidth": 0.6, "alpha": 0.6, "relpos": (0, 0.5)}
        far = abs(height - end.y) > step / 4 or end.x < right - 0.1 * (right - axes.get_xlim()[0])
        axes.annotate(
            literal(end.name), (end.x, end.y), (right, height), va="center", fontsize=size, annotation_clip=False,
            color=readable(end.colour, page), arrowprops={**line, "shrinkA": 0, "shrinkB": 3} if far else None,
        )  # fmt: skip


def spread(wanted: Sequence[float], step: float, low: float, high: float) -> list[float]:
    """Heights near the wanted ones, at least a step apart, and between low and high as far as there is room.

    >>> spread([1.0, 1.0], 2.0, 0.0, 10.0)
    [0.0, 2.0]
    """
    order = sorted(range(len(wanted)), key=lambda i: (wanted[i], i))
    blocks: list[list[int]] = []  # those that touch, from below; each is centred on what its members want
    places: list[float] = []
    for i in order:
        blocks.append([i])
        places.append(_place(blocks[-1], wanted, step, low, high))
        while len(blocks) > 1 and places[-2] + step * len(blocks[-2]) > places[-1] + 1e-9 * step:
            last = blocks.pop()
            blocks[-1] += last
            places.pop()
            places[-1] = _place(blocks[-1], wanted, step, low, high)
    found = [math.nan] * len(wanted)
    for block, place in zip(blocks, places, strict=True):
        for k, i in enumerate(block):
            found[i] = place + k * step
    return found


def _place(block: Sequence[int], wanted: Sequence[float], step: float, low: float, high: float) -> float:
    """The height of a block's lowest member."""
    middle = sum(wanted[i] - k * step for k, i in enumerate(block)) / len(block)
    return max(low, min(middle, high - step * (len(block) - 1)))
