"""A score for each attention head."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .colours import LIGHT, Page
from .figure import figure

if TYPE_CHECKING:
    from numpy.typing import NDArray


def draw_heads(table: NDArray[np.floating[Any]], path: Path, title: str = "", page: Page = LIGHT) -> None:
    """A heat map with a number per head: a row per layer and a column per head, both counted from 1.

    Args:
        table: scores of heads (L, H), drawn times 100.
        path: see `figure`.
        title: above it.
        page: its colours.
    """
    layers, heads = table.shape
    with figure(path, page=page, width=1.6 + 0.38 * heads, height=0.9 + 0.3 * layers) as axes:
        image = axes.imshow(100 * table, aspect="auto", cmap="cividis")
        axes.figure.colorbar(image, ax=axes)
        middle = np.nanmean(table)
        for (layer, head), value in np.ndenumerate(table):
            colour = "white" if value < middle else "black"
            axes.text(head, layer, f"{100 * value:.0f}", ha="center", va="center", color=colour, fontsize=7)
        axes.set_xticks(range(heads), [str(h + 1) for h in range(heads)])
        axes.set_yticks(range(layers), [str(k + 1) for k in range(layers)])
        axes.grid(visible=False)
        axes.set(xlabel="head", ylabel="layer", title=title)
