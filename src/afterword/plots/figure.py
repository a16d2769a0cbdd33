"""The style of figures, and how one is written. Only this room uses matplotlib, imported only to draw.

A new figure is a file of this room with one function ``draw_NAME(result, path, page=LIGHT)``:

- It opens `figure` (one pair of axes) or `drawing` (a whole Figure) with the path, the page, a title that states the
  finding, and a subtitle that says what was measured, of what, and how many.
- Series i is drawn in ``**look(page, i)``, a colour and a mark; a second factor is a dash of `DASHES`. Names stand at
  the ends of lines (`label_ends`) rather than in a legend. Text from outside goes through `literal`, text on a
  coloured cell takes `text_on`, text in the colour of a series takes `readable`.
- Ticks of a logarithmic axis are written out with a ScalarFormatter: "$" is no mark of a formula here.
- Its verb takes ``o.Plot`` and ``o.Dark``, checks with ``check_plot`` before it computes, and draws with ``draw_plot``
  (cli/drawing.py): ``draw_plot(plot, dark, partial(draw_NAME, result))``.
"""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputError, MissingExtra, warn
from ..files.atomic import atomic_file, check_target
from .colours import DARK, LIGHT, Page
from .labels import literal, wrapped

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["DASHES", "check", "drawing", "figure", "look", "pages"]

KINDS = (".png", ".svg", ".pdf")
MARKS = ("o", "s", "^", "D", "v", "P", "X", "*")
"""One more than there are colours: 56 series differ."""
DASHES: tuple[Any, ...] = ("-", (0, (4, 1.6)), (0, (1.2, 1.4)), (0, (6, 1.5, 1.2, 1.5)))

FONT = "DejaVu Sans"  # it comes with matplotlib
HAN = (
    "Noto Sans CJK SC", "Noto Sans SC", "Source Han Sans SC", "WenQuanYi Micro Hei", "WenQuanYi Zen Hei", "PingFang SC",
    "Hiragino Sans GB", "Microsoft YaHei", "SimHei", "Arial Unicode MS", "Droid Sans Fallback",
)  # fmt: skip
"""Fonts with Chinese characters, on Linux, macOS and Windows: the first that is installed is used beside `FONT`."""
IN_SVG = (FONT, "Noto Sans CJK SC", "PingFang SC", "Microsoft YaHei", "sans-serif")

TITLE, SUBTITLE = 11.0, 9.0  # sizes, in points


def look(page: Page, i: int) -> dict[str, Any]:
    """The colour and the mark of series i, as keyword arguments of ``plot``."""
    return {"color": page.series[i % len(page.series)], "marker": MARKS[i % len(MARKS)]}


def pages(path: Path, dark: bool) -> list[tuple[Path, Page]]:
    """The files of a figure: the light one, and if asked for the dark one beside it.

    >>> [str(file) for file, _ in pages(Path("a.svg"), dark=True)]
    ['a.svg', 'a-dark.svg']
    """
    return [(path, LIGHT)] + [(path.with_stem(f"{path.stem}-dark"), DARK)] * dark


@contextmanager
def figure(
    path: Path, width: float = 6.0, height: float = 3.6, *, title: str = "", subtitle: str = "", page: Page = LIGHT
) -> Iterator[Axes]:
    """As `drawing`, with one pair of axes.

    Yields:
        The axes to draw on.
    """
    with drawing(path, width, height, title=title, subtitle=subtitle, page=page) as drawn:
        yield drawn.add_subplot()


@contextmanager
def drawing(
    path: Path, width: float = 6.0, height: float = 3.6, *, title: str = "", subtitle: str = "", page: Page = LIGHT
) -> Iterator[Figure]:
    """A context that gives a new Figure and saves it at the end, unless there was an error.

    No window is opened, and no global state of matplotlib is changed. A file of this name stays until the new one is
    complete.

    Args:
        path: a .png, .svg or .pdf file; letters in an .svg are text, not outlines.
        width: in inches.
        height: in inches, without title and subtitle.
        title: what the figure shows: the finding.
        subtitle: what was measured, of what, and how many.
        page: the page's colours.

    Yields:
        The Figure to draw on.

    Raises:
        InputError: the file has another ending.
        DataError: it cannot be written.
        MissingExtra: matplotlib is not installed.
    """
    check(path)
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    svg, file = path.suffix == ".svg", BytesIO()
    with rc_context(_style(page, svg)), _missing_glyphs(None if svg else path):
        lines = [(line, TITLE, page.ink) for line in wrapped(literal(title, 400), width, TITLE * 1.1)]
        lines += [(line, SUBTITLE, page.muted) for line in wrapped(literal(subtitle, 400), width, SUBTITLE)]
        top = sum(size * 1.35 for _, size, _ in lines) / 72 + 0.08 * bool(lines)
        drawn = Figure(figsize=(width, height + top))
        drawn.get_layout_engine().set(rect=(0, 0, 1, height / (height + top)))  # type: ignore[union-attr, call-arg]
        at = height + top - 0.04
        for line, size, colour in lines:
            weight = "bold" if size == TITLE else "normal"
            drawn.text(0.06 / width, at / (height + top), line, size=size, color=colour, weight=weight, va="top")
            at -= size * 1.35 / 72
        yield drawn
        drawn.savefig(file, format=path.suffix[1:], metadata={"Date": None} if svg else None)
    with atomic_file(path) as out:
        out.write(file.getvalue())


def check(path: Path, dark: bool = False) -> None:
    """Check, before a long computation, that a figure can be written to this file.

    Raises:
        InputError: the file has another ending than `KINDS`.
        DataError: it is a folder, or would lie in none.
        MissingExtra: matplotlib is not installed.
    """
    if path.suffix not in KINDS:
        raise InputError(f"{path} is no figure: give a file that ends in {', '.join(KINDS)}")
    for file, _ in pages(path, dark):
        check_target(file)
    try:
        import matplotlib  # noqa: F401
    except ModuleNotFoundError:
        raise MissingExtra("matplotlib", "plots") from None


def _chinese_font() -> list[str]:
    """The first of `HAN` that is installed. matplotlib remembers which fonts there were: newer ones are looked for."""
    from matplotlib.font_manager import findSystemFonts, fontManager

    known = {font.fname for font in fontManager.ttflist}
    if not {font.name for font in fontManager.ttflist} & set(HAN):
        for path in sorted(set(findSystemFonts()) - known):
            with suppress(OSError, RuntimeError):  # a file that is no font
                fontManager.addfont(path)
    installed = {font.name for font in fontManager.ttflist}
    return [name for name in HAN if name in installed][:1]


def _style(page: Page, svg: bool) -> dict[str, Any]:
    return {
        "figure.dpi": 150,
        "savefig.dpi": 300,
        "figure.constrained_layout.use": True,
        "figure.facecolor": page.ground,
        "savefig.facecolor": page.ground,
        "font.family": list(IN_SVG) if svg else [FONT, *_chinese_font()],
        "font.size": 9,
        "text.color": page.ink,
        "text.parse_math": False,
        "axes.titlesize": 10,
        "axes.titlelocation": "left",
        "axes.facecolor": page.ground,
        "axes.edgecolor": page.muted,
        "axes.labelcolor": page.ink,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.grid.axis": "y",
        "axes.axisbelow": True,
        "axes.prop_cycle": f"cycler('color', {list(page.series)})",
        "xtick.color": page.muted,
        "ytick.color": page.muted,
        "xtick.labelcolor": page.ink,
        "ytick.labelcolor": page.ink,
        "grid.color": page.faint,
        "grid.linewidth": 0.6,
        "lines.linewidth": 1.6,
        "lines.markersize": 4.5,
        "legend.frameon": False,
        "pdf.fonttype": 42,
        "svg.fonttype": "none",
        "svg.hashsalt": "afterword",
    }


@contextmanager
def _missing_glyphs(path: Path | None) -> Iterator[None]:
    """One warning for all characters that no font here has, instead of one for each; none for an .svg (no path).

    An .svg names fonts that need not be here, so matplotlib's word that it did not find them is left out too.
    """
    log = logging.getLogger("matplotlib.font_manager")
    level = log.level
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        log.setLevel(logging.ERROR)
        try:
            yield
        finally:
            log.setLevel(level)
    missing = []
    for one in caught:
        glyph = re.match(r"Glyph (\d+) ", str(one.message))
        if glyph is None:
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
        else:
            missing.append(chr(int(glyph[1])))
    if missing and path is not None:
        letters = "".join(dict.fromkeys(missing))
        shown = letters if len(letters) <= 8 else f"{letters[:8]}…"
        told = f"{path}: no font here has {len(letters)} of its characters ({shown}), which are drawn as boxes: "
        warn(told + "install one, for Chinese Noto Sans CJK, or draw an .svg file")
