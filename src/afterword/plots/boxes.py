"""How far the pivot goes with the other tokens, a box per model."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from .colours import LIGHT, Page
from .figure import COLOURS, figure

if TYPE_CHECKING:
    from ..analysis.dependency import Dependency


def draw_dependency(results: Sequence[Dependency], path: Path, title: str = "", page: Page = LIGHT) -> None:
    """A box plot with one box per model, as in Figures 2 and 5 of BeLLM; a diamond and a number show the mean.

    Args:
        results: results of `dependency`.
        path: see `figure`.
        title: above it.
        page: its colours.
    """
    line = {"color": COLOURS[-1]}
    with figure(path, page=page, width=max(3.2, 1.6 + 1.3 * len(results))) as axes:
        boxes = axes.boxplot(
            [r.values[~np.isnan(r.values)] for r in results],
            widths=0.45, patch_artist=True, showmeans=True, medianprops=line, whiskerprops=line, capprops=line,
            meanprops={"marker": "D", "markerfacecolor": "white", "markeredgecolor": COLOURS[-1]},
            flierprops={"marker": ".", "markersize": 3, "markeredgecolor": "#999999"},
        )  # fmt: skip
        for i, (box, result) in enumerate(zip(boxes["boxes"], results, strict=True)):
            box.set(facecolor=COLOURS[i % len(COLOURS)], alpha=0.6)
            if not np.isnan(result.mean):
                axes.annotate(f"{result.mean:.2f}", (i + 1.27, result.mean), va="center")
        labels = [re.sub(r"[ ,:]", "\n", result.name) + f"\n({result.pivot} token)" for result in results]
        axes.set_xticks(range(1, len(results) + 1), labels)
        axes.set(ylabel="Spearman: pivot and other tokens", title=title)
