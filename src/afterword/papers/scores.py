"""Draw scores of encoders by task, next to published ones: a panel per task, and in it a line per encoder."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .figure import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ACROSS = 8  # panels next to each other, at most


@dataclass(frozen=True)
class Series:
    """One encoder's scores.

    Attributes:
        name: the name of its line.
        scores: one per column; None for a missing one.
        deviations: their standard deviations, where they are known; () if none is.
        published: whether they are a paper's.
        group: the heading of its line; encoders of one group follow each other.
        marked: indices of the columns whose score was measured on different data from the column's other scores.
    """

    name: str
    scores: Sequence[float | None]
    deviations: Sequence[float | None] = ()
    published: bool = False
    group: str = ""
    marked: frozenset[int] = frozenset()


def layout(columns: Sequence[str], series: Sequence[Series]) -> tuple[tuple[float, float], tuple[int, int]]:
    """The size of the figure in inches, and its rows and columns of panels."""
    rows = math.ceil(len(columns) / ACROSS)
    across = math.ceil(len(columns) / rows)
    lines = len(series) + len({one.group for one in series})
    names = max(len(text) for one in series for text in (one.name, one.group))
    return (1.2 + 0.065 * min(names, 60) + 1.6 * across, rows * (0.8 + 0.19 * lines) + 0.7), (rows, across)


def plot(*panels: Axes, columns: Sequence[str], series: Sequence[Series], digits: int = 2) -> None:
    """Draw a mark per score, with its number to the right, and a bar for ± where that is known.

    A score measured here is filled, a published one hollow, and one of different data a cross; the best is bold.

    Args:
        panels: one per column, or more.
        columns: names of the tasks.
        series: the scores of each encoder.
        digits: decimals of the numbers.
    """
    from matplotlib import rcParams

    lines: list[tuple[str, Series | None]] = []
    for i, one in enumerate(series):
        if one.group and (i == 0 or series[i - 1].group != one.group):
            lines.append((one.group, None))
        lines.append((one.name, one))
    groups = list(dict.fromkeys(one.group for one in series if not one.published))
    across = max(panel.get_subplotspec().get_gridspec().ncols for panel in panels)  # type: ignore[union-attr]
    for k, axes in enumerate(panels):
        if k >= len(columns):
            axes.set_visible(False)
            continue
        best = max((s for one in series if (s := one.scores[k]) is not None and k not in one.marked), default=None)
        for y, (_, line) in enumerate(lines):
            if line is None or (score := line.scores[k]) is None or not math.isfinite(score):
                continue
            colour = rcParams["axes.edgecolor"] if line.published else f"C{groups.index(line.group)}"
            spread, marked = (line.deviations[k] if line.deviations else None) or 0.0, k in line.marked
            axes.errorbar(
                score, y, xerr=spread or None, marker="x" if marked else "o", color=colour, capsize=2,
                markerfacecolor="none" if line.published else colour,
            )  # fmt: skip
            number = f"{score:.{digits}f}" + f" ±{spread:.{digits}f}" * bool(spread) + "*" * marked
            weight = "bold" if len(series) > 1 and score == best and not marked else "normal"
            axes.annotate(number, (1.03, y), xycoords=("axes fraction", "data"), va="center", size=7, weight=weight)
        axes.set_title(printable(columns[k]), size=8)
        axes.set_ylim(len(lines) - 0.5, -0.5)
        axes.set_yticks(range(len(lines)), [printable(name) for name, _ in lines])
        axes.tick_params(labelsize=7, labelleft=k % across == 0)
        axes.tick_params(axis="y", length=0)
        axes.locator_params(axis="x", nbins=3)
        for label, (_, line) in zip(axes.get_yticklabels(), lines, strict=False):
            label.set_fontweight("bold" if line is None else "normal")
