"""Alignment over uniformity of encoders."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from .colours import LIGHT, Page, readable
from .figure import figure, look
from .labels import literal

if TYPE_CHECKING:
    from ..analysis.isotropy import Isotropy

EXPLAINED = "lower is better on both axes; arrows lead from a model's first encoder to its others"


def draw_isotropy(results: Sequence[tuple[str, Isotropy]], path: Path, title: str = "", page: Page = LIGHT) -> None:
    """A point per encoder, as in Figure 4 of Ditto; arrows lead from the first encoder of a model to its others.

    Args:
        results: results of `isotropy` with pairs, each with its model's name.
        path: see `figure`.
        title: above it; None says which encoder is best on each axis.
        page: its colours.
    """
    every = [r for _, r in results]
    even, close = min(every, key=lambda r: r.uniformity), min(every, key=lambda r: r.alignment)
    models = list(dict.fromkeys(model for model, _ in results))
    one = f"{models[0]}: " if len(models) == 1 else ""
    title = title or f"{one}{even.name} is the most uniform, {close.name} the best aligned"
    counts = f"{every[0].texts} texts, {every[0].positives} positive pairs; {EXPLAINED}"
    starts: dict[str, Isotropy] = {}
    with figure(path, page=page, title=title, subtitle=counts) as axes:
        for i, (model, r) in enumerate(results):
            start, at, series = starts.setdefault(model, r), (r.uniformity, r.alignment), look(page, i)
            axes.plot(*at, markersize=7, linestyle="none", **series)
            others = [other for m, other in results if m == model and other is not r] if r is start else [start]
            x, y = _away(r, others, every)
            axes.annotate(
                literal(r.name), at, (8 * x, 8 * y), textcoords="offset points", fontsize=8,
                ha=("center", "left", "right")[x], va=("center", "bottom", "top")[y],
                color=readable(series["color"], page),
                bbox={"facecolor": page.ground, "edgecolor": "none", "alpha": 0.8, "pad": 0.5},
            )  # fmt: skip
            if r is not start:
                line = {"arrowstyle": "->", "color": page.muted, "linewidth": 0.8, "shrinkA": 5, "shrinkB": 5}
                axes.annotate("", at, (start.uniformity, start.alignment), arrowprops=line)
        axes.margins(0.45, 0.15)
        axes.set(xlabel="uniformity: log mean exp(−2 d²)", ylabel="alignment: mean d² of positive pairs")


def _away(point: Isotropy, others: Sequence[Isotropy], every: Sequence[Isotropy]) -> tuple[int, int]:
    """The side of a point, right, left, above or below, that is the farthest from the arrows to others."""
    points = np.array([(r.uniformity, r.alignment) for r in every])
    span = np.where(np.ptp(points, 0) > 0, np.ptp(points, 0), 1)
    here = np.array([point.uniformity, point.alignment])
    arrows = [(np.array([r.uniformity, r.alignment]) - here) / span for r in others]
    ways = [arrow / (np.linalg.norm(arrow) or 1) for arrow in arrows]
    return min(((1, 0), (-1, 0), (0, 1), (0, -1)), key=lambda side: max((float(way @ side) for way in ways), default=0))
