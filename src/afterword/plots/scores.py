"""Scores of encoders by task, beside published ones: a panel per task, and in it a line per encoder."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .colours import LIGHT, Page
from .figure import drawing, look
from .finding import Series, best, finding
from .labels import length, literal, wrapped

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ACROSS = 8  # panels beside each other, at most
PANEL = 1.45  # width of a panel, in inches
TEXT, SMALL = 8.0, 7.0  # sizes of names and of numbers, in points
WIDEST = 3.2  # width of the names, in inches; a longer one takes several lines
LINE = 0.185  # height of a line, in inches


@dataclass(frozen=True)
class Places:
    """Where the lines of a panel stand, from 0 at the top.

    Attributes:
        at: the place of each series.
        names: the name of each, perhaps in several lines.
        heads: headings by place.
        end: the number of lines.
    """

    at: tuple[float, ...]
    names: tuple[str, ...]
    heads: Mapping[float, str]
    end: float


def draw_scores(
    columns: Sequence[str], series: Sequence[Series], path: Path, *, title: str = "", subtitle: str = "",
    digits: int = 2, bars: bool = False, page: Page = LIGHT,
) -> None:  # fmt: skip
    """Plot a mark per score, with the score beside it and a bar for ± where that is known.

    Encoders are told apart by place and name, so that no number of them needs more marks or colours. What was
    evaluated here is filled and has the colour and the mark of its group; published scores are hollow and grey; scores
    of other data are crosses. The best of each panel is bold, and so is what is level with it.

    Args:
        columns: names of the tasks.
        series: the scores of each encoder; neighbours of one group stand under its name.
        path: see `drawing`.
        title: what the figure shows; "" = `finding`.
        subtitle: what was measured.
        digits: decimals of the scores that are written out.
        bars: draw bars from 0, as in Figures 3 and 5 of ReBA.
        page: its colours.
    """
    told, ranked = title or finding(columns, series, digits), len(series) > 1
    if len(series) == 1 and len(columns) > 1:
        columns, series = (series[0].name,), _by_task(columns, series[0])
    bands = math.ceil(len(columns) / ACROSS)
    across = math.ceil(len(columns) / bands)
    places = _places(series)
    lines = [line for text in (*places.names, *places.heads.values()) for line in text.split("\n")]
    left = 0.3 + max(map(length, lines)) * TEXT / 72
    width = max(4.5, left + across * PANEL)
    heads = [_wrapped(column, (width - left) / across - 0.02) for column in columns]
    height = bands * (0.6 + 0.15 * max(head.count("\n") + 1 for head in heads) + LINE * places.end)
    with drawing(path, width, height, title=told, subtitle=subtitle, page=page) as drawn:
        drawn.get_layout_engine().set(h_pad=0.08)  # type: ignore[union-attr, call-arg]
        panels = drawn.subplots(bands, across, squeeze=False).ravel()
        for k, axes in enumerate(panels):
            if k >= len(columns):
                axes.set_visible(False)
                continue
            axes.set_title(heads[k], size=TEXT)
            _names(axes, places, page, k % across == 0)
            numbers = [_number(one, k, digits) for one in series]
            room = 1 - (max(map(length, numbers)) * SMALL / 72 + 0.06) / ((width - left) / across - 0.1)
            ends = _scale(axes, k, series, room, bars)
            axes.hlines(places.at, *ends, color=page.faint, lw=0 if bars else 0.6, zorder=0.5)
            _marks(axes, k, series, places, bars, page)
            firsts = best(k, series, digits) if ranked else []
            for one, at, number in zip(series, places.at, numbers, strict=True):
                axes.annotate(
                    number, (1, at), xycoords=("axes fraction", "data"), ha="right", va="center", size=SMALL,
                    weight="bold" if any(one is first for first in firsts) else "normal",
                    color=page.muted if one.published else page.ink,
                )  # fmt: skip


def _by_task(columns: Sequence[str], one: Series) -> list[Series]:
    """The scores of one encoder as one column, a line per task."""

    def alone(k: int) -> Series:
        marked = frozenset({0} if k in one.marked else ())
        return Series(columns[k], (one.scores[k],), (one.deviation(k),), one.published, "", marked)

    return [alone(k) for k in range(len(columns))]


def _places(series: Sequence[Series]) -> Places:
    at, names, heads, end, group = [], [], {}, 0.0, ""
    for one in series:
        if one.group != group:
            heads[end], group = _wrapped(one.group, WIDEST), one.group
            end += 1 + heads[end].count("\n")
        names.append(_wrapped(one.name, WIDEST))
        more = names[-1].count("\n") * 0.75
        at.append(end + more / 2)
        end += 1 + more
    return Places(tuple(at), tuple(names), heads, end)


def _wrapped(text: str, inches: float) -> str:
    """A name in lines of this width, which break after blanks and the signs of a spelling if they can."""
    lines = [""]
    for part in re.split(r"(?<=[\s:,+/])", literal(text, 200)):
        if lines[-1] and length(lines[-1] + part) * TEXT / 72 > inches:
            lines.append("")
        lines[-1] += part
    return "\n".join(line for part in lines for line in wrapped(part, inches, TEXT))


def _names(axes: Axes, places: Places, page: Page, shown: bool) -> None:
    """The lines of a panel, and their names at its left."""
    axes.set_ylim(places.end - 0.4, -0.6)
    axes.set_yticks(places.at, places.names if shown else [""] * len(places.names), size=TEXT)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.grid(visible=False)
    for at, text in places.heads.items() if shown else ():
        axes.annotate(
            text, (0, at), (-3.5, 0), xycoords=("axes fraction", "data"), textcoords="offset points", ha="right",
            va="center", size=TEXT, weight="bold", color=page.muted,
        )  # fmt: skip


def _scale(axes: Axes, k: int, series: Sequence[Series], room: float, bars: bool) -> tuple[float, float]:
    """Set the scale, which takes this share of the width, the numbers the rest; returns its ends."""
    from matplotlib.ticker import MaxNLocator

    ends = [one.score(k) + sign * one.deviation(k) for one in series for sign in (-1, 1)]
    there = [end for end in ends if math.isfinite(end)] or [0.0, 1.0]
    low, high = (min(0.0, *there), max(0.0, *there)) if bars else (min(there), max(there))
    span = max(high - low, abs(high) * 0.02) or 1.0
    low, high = low - (0 if bars and low == 0 else span * 0.1), high + span * 0.1
    axes.set_xlim(low, low + (high - low) / room)
    ticks = [t for t in MaxNLocator(2).tick_values(low, high) if low <= t <= high]
    axes.set_xticks(ticks, [f"{t:g}" for t in ticks], size=SMALL)
    axes.spines["bottom"].set_bounds(low, high)
    return low, high


def _marks(axes: Axes, k: int, series: Sequence[Series], places: Places, bars: bool, page: Page) -> None:
    groups = list(dict.fromkeys(one.group for one in series if not one.published))
    for one, at in zip(series, places.at, strict=True):
        score, marked = one.score(k), k in one.marked
        if not math.isfinite(score):
            continue
        own = look(page, groups.index(one.group)) if not one.published else {"color": page.muted, "marker": "o"}
        colour, mark = own["color"], "x" if marked else own["marker"]
        if bars:
            fill = "none" if one.published else colour
            axes.barh(at, score, 0.7, color=fill, edgecolor=colour, hatch="///" if marked else "")
        else:
            fill = page.ground if one.published else colour
            axes.plot(score, at, mark, color=colour, markerfacecolor=fill)
        if one.deviation(k):
            axes.errorbar(score, at, xerr=one.deviation(k), color=page.ink, lw=1, capsize=2, zorder=4)


def _number(one: Series, k: int, digits: int) -> str:
    """A score as it is written beside its mark; a star if it is marked."""
    if one.scores[k] is None:
        return ""
    spread = f" ±{one.deviation(k):.{digits}f}" if one.deviation(k) else ""
    return f"{one.score(k):.{digits}f}{spread}{'*' if k in one.marked else ''}"
