"""The colours of figures, on light pages and on dark ones, and how well they can be read."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import InputError

LEGIBLE = 4.5
"""The contrast that text needs at least (WCAG 2.2, success criterion 1.4.3)."""


@dataclass(frozen=True)
class Page:
    """The colours of one kind of page.

    Attributes:
        ground: behind everything.
        ink: text and frames.
        muted: text of second rank, and what is given for comparison.
        faint: grid lines and shaded areas.
        series: a colour per series, told apart in simulated deuteranopia and protanopia too; each has a contrast of
            3 or more with the ground.
    """

    ground: str
    ink: str
    muted: str
    faint: str
    series: tuple[str, ...]


LIGHT = Page(
    "#ffffff", "#1f2328", "#59636e", "#e1e4e8",
    ("#0069a8", "#e8470f", "#00805c", "#a16898", "#859b28", "#4a97cf", "#333333"),
)  # fmt: skip
DARK = Page(
    "#0d1117", "#e6edf3", "#9aa4af", "#2b323b",
    ("#4f9df5", "#e86a2a", "#3cd685", "#cf78a6", "#f2e24b", "#afd0ff", "#e0ece8"),
)  # fmt: skip


def luminance(colour: str) -> float:
    """The relative luminance of a colour like "#0069a8", from 0 (black) to 1 (white), as WCAG 2.2 defines it.

    >>> luminance("#ffffff")
    1.0
    """
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(first: str, second: str) -> float:
    """The contrast of two colours, from 1 to 21 (WCAG 2.2).

    >>> round(contrast("#000000", "#ffffff"), 1)
    21.0
    """
    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


def text_on(ground: str) -> str:
    """Black or white, whichever is read better on this colour: the contrast is never below 4.5.

    >>> text_on("#e69f00")
    '#000000'
    """
    return max("#000000", "#ffffff", key=lambda colour: contrast(colour, ground))


def readable(colour: str, page: Page) -> str:
    """A colour of a series as one for text: mixed with the page's ink until its contrast is `LEGIBLE`.

    Raises:
        InputError: not even the ink is legible on the page.
    """
    for share in range(11):
        mixed = mix(colour, page.ink, share / 10)
        if contrast(mixed, page.ground) >= LEGIBLE:
            return mixed
    raise InputError(f"{page.ink} on {page.ground} cannot be read: give the page another ink")


def mix(first: str, second: str, share: float) -> str:
    """A colour between two, with this share of the second.

    >>> mix("#000000", "#ffffff", 0.5)
    '#808080'
    """
    parts = [(int(first[i : i + 2], 16), int(second[i : i + 2], 16)) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(a + share * (b - a)):02x}" for a, b in parts)
