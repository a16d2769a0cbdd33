"""How far the pivot goes with the other tokens, a box per model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from .colours import LIGHT, Page
from .figure import figure
from .labels import literal, wrapped

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..analysis.dependency import Dependency

PAPER = {"LLaMA": 0.17, "BERT": 0.35}
"""The means of BeLLM's Figure 2, drawn as thin lines."""


def draw_dependency(
    results: Sequence[Dependency],
    path: Path,
    title: str = "",
    page: Page = LIGHT,
    *,
    subtitle: str = "",
    colours: Sequence[int] = (),
) -> None:
    """A box plot with one box per result, as in Figures 2 and 5 of BeLLM; a diamond and a number show the mean.

    Args:
        results: results of `dependency`, at least one.
        path: see `figure`.
        title: above it; by default what `finding` says.
        page: its colours.
        subtitle: what was measured.
        colours: the number of each result's colour, one per model; by default all have the same.
    """
    labels = [_label(result) for result in results]
    height = 0.75 + sum(0.2 + 0.15 * max(2, len(label)) for label in labels)
    with figure(path, 6.6, height, title=title or finding(results), subtitle=subtitle, page=page) as axes:
        places = range(len(results), 0, -1)
        line = {"color": page.ink, "linewidth": 0.9}
        boxes = axes.boxplot(
            [r.values[~np.isnan(r.values)] for r in results],
            positions=list(places), orientation="horizontal", widths=0.55, patch_artist=True, showmeans=True,
            medianprops={**line, "linewidth": 1.4}, whiskerprops=line, capprops=line,
            meanprops={"marker": "D", "markerfacecolor": page.ground, "markeredgecolor": page.ink},
            flierprops={"marker": ".", "markersize": 2.5, "markeredgecolor": page.muted, "markerfacecolor": page.muted},
        )  # fmt: skip
        for box, colour in zip(boxes["boxes"], colours or [0] * len(results), strict=True):
            box.set(facecolor=f"{page.series[colour % len(page.series)]}99", edgecolor=page.ink, linewidth=0.9)
        axes.set_yticks(list(places), ["\n".join(label) for label in labels])
        axes.set_xlabel("how far the pivot goes with the other tokens (Spearman's correlation)")
        axes.grid(axis="x")
        axes.grid(visible=False, axis="y")
        beside = axes.get_yaxis_transform()
        for place, result in zip(places, results, strict=True):
            mean = "-" if np.isnan(result.mean) else f"{result.mean:.2f}"
            axes.text(1.02, place, mean, transform=beside, va="center", weight="bold")
        _draw_paper(axes, page, len(results))


def finding(results: Sequence[Dependency]) -> str:
    """What the boxes show: the mean, or the lowest and the highest with their names.

    Args:
        results: at least one.
    """
    known = sorted((r for r in results if not np.isnan(r.mean)), key=lambda r: r.mean)
    if not known:
        return "no sentence has a second token: there is nothing to correlate"
    low, high = known[0], known[-1]
    if low is high:
        return f"{low.name}: the pivot goes with the other tokens by {low.mean:.2f}"
    return f"The pivot goes with the other tokens by {low.mean:.2f} ({low.name}) to {high.mean:.2f} ({high.name})"


def _label(result: Dependency) -> list[str]:
    """A name in short lines, and which token is the pivot."""
    return [*wrapped(literal(result.name).replace(",", ", "), 1.9, 9), f"{result.pivot} token"]


def _draw_paper(axes: Axes, page: Page, results: int) -> None:
    for (name, mean), side in zip(PAPER.items(), ("right", "left"), strict=True):
        axes.axvline(mean, color=page.muted, linewidth=0.8, linestyle=(0, (4, 2)), zorder=0.5)
        axes.annotate(
            f"{name} in the paper: {mean}", (mean, results + 0.5), (0, 1), textcoords="offset points", ha=side,
            va="bottom", fontsize=7.5, color=page.muted, annotation_clip=False,
        )  # fmt: skip
    axes.set_ylim(0.5, results + 0.5)
