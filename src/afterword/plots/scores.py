"""Scores of encoders by task, beside published ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

from .figure import COLOURS, figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Series:
    """One encoder's scores.

    Attributes:
        name: name in the legend.
        scores: one per column; None for a missing one.
        published: whether they are a paper's.
    """

    name: str
    scores: Sequence[float | None]
    published: bool = False


def draw_scores(columns: Sequence[str], series: Sequence[Series], path: Path, title: str = "", label: str = "") -> None:
    """Plot a marker per score, in a column per task; published series are grey, with their names at the last points.

    Args:
        columns: names of the tasks.
        series: the scores of each encoder.
        path: see `figure`.
        title: above it.
        label: label of the axis of scores.
    """
    theirs, ours = cycle("ovsD^<>pPX*hd1234+x"), cycle(zip("oDs^vPX", COLOURS, strict=True))
    ends: list[tuple[float, float, str]] = []
    with figure(path, width=max(5.0, 2.5 + 0.7 * len(columns)), height=max(3.6, 1.2 + 0.17 * len(series))) as axes:
        for i, one in enumerate(series):
            shift = 0.5 * (i / max(len(series) - 1, 1) - 0.5)
            at = [x for x, score in enumerate(one.scores) if score is not None]
            mark, colour = (next(theirs), "#999999") if one.published else next(ours)
            scores = [s for s in one.scores if s is not None]
            name = None if one.published else one.name
            axes.plot([x + shift for x in at], scores, mark, color=colour, label=name)
            if one.published and at:
                ends.append((at[-1] + shift, scores[-1], f"{one.name} (published)"))
        _label_ends(axes, ends, len(columns) - 0.4)
        axes.set_xticks(range(len(columns)), list(columns), rotation=30, ha="right")
        axes.set(title=title, ylabel=label)
        if any(not one.published for one in series):
            axes.legend(loc="best")


def _label_ends(axes: Axes, ends: Sequence[tuple[float, float, str]], right: float) -> None:
    """Write names to the right of points, far enough from each other to be read, each with a line to its point."""
    low, high = axes.get_ylim()
    ends, places = sorted(ends, key=lambda end: end[1]), [-math.inf]
    for _, y, _ in ends:
        places.append(max(y, places[-1] + (high - low) / 22))
    down = max(places[-1] - high, 0)
    arrow = {"arrowstyle": "-", "color": "#cccccc", "linewidth": 0.6, "relpos": (0, 0.5)}
    for (x, y, name), place in zip(ends, places[1:], strict=True):
        axes.annotate(
            name, (x, y), (right, place - down), annotation_clip=False, fontsize=7, color="#666666", va="center",
            arrowprops=arrow,
        )  # fmt: skip
