"""Score by the number of layers that are kept."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .colours import LIGHT, Page
from .figure import COLOURS, figure

if TYPE_CHECKING:
    from ..analysis.turning import Curve


def draw_degradation(curves: Sequence[Curve], path: Path, title: str = "", page: Page = LIGHT) -> None:
    """Plot scores over the number of layers kept, as in Figure 4 of BeLLM; a ring marks each turning point.

    Args:
        curves: as `degradation` gives them.
        path: see `figure`.
        title: above it.
        page: its colours.
    """
    from matplotlib.ticker import MaxNLocator

    with figure(path, page=page) as axes:
        for curve in curves:
            percent = [100 * score for score in curve.scores]
            (line,) = axes.plot(percent, marker="o", label=curve.name)
            if curve.turning is not None:
                at, colour = curve.turning.kept, line.get_color()
                axes.plot(at, percent[at], marker="o", markersize=10, markerfacecolor="none", color=colour)
        axes.plot([], [], "o", markersize=10, markerfacecolor="none", color=COLOURS[-1], label="turning point")
        axes.set(xlabel="layers kept, all causal", ylabel="Spearman's correlation × 100", title=title)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
