"""The impact matrix of one text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from .colours import LIGHT, Page
from .figure import drawing
from .labels import length, literal

if TYPE_CHECKING:
    from ..analysis.impact import Impact


def draw_impact(result: Impact, path: Path, title: str = "", page: Page = LIGHT, *, subtitle: str = "") -> None:
    """The content tokens' impact matrix as a heat map, as in Figure 1 of Ditto, below the means of its columns.

    The diagonal is 0 by definition and is grey; the scale begins at the 2nd percentile of the rest.

    Args:
        result: the result of `impact`.
        path: see `figure`.
        title: above it; by default what `finding` says.
        page: its colours.
        subtitle: what was measured.
    """
    import matplotlib

    inside = slice(*result.content)
    names = [literal(token, 24) for token in result.tokens[inside]]
    count = len(names)
    matrix = np.ma.masked_array(result.matrix[inside, inside], np.eye(count, dtype=bool))
    others = matrix.compressed()
    low, high = (float(np.percentile(others, 2, method="lower")), float(others.max())) if count > 1 else (0.0, 1.0)
    beyond = "min" if (others < low).any() else "neither"
    cell = max(0.14, min(0.26, 9 / count))  # inches
    font, side = min(8.5, 60 * cell), cell * count
    margin = max(map(length, names)) * font / 72 + 0.45
    tints = matplotlib.colormaps["Blues" if page is LIGHT else "Blues_r"].with_extremes(bad=page.faint)
    size = max(4.6, side + margin + 1.0), max(2.6, side + margin + 0.8)
    with drawing(path, *size, title=title or finding(result), subtitle=subtitle, page=page) as drawn:
        bars, axes = drawn.subplots(2, sharex=True, height_ratios=[0.6, max(side, 1.0)])
        bars.bar(range(count), result.columns, 0.7, color=page.series[0])
        bars.set(ylabel="mean of\ncolumn")
        bars.tick_params(bottom=False, labelbottom=False)
        image = axes.imshow(matrix, cmap=tints, vmin=low, vmax=high, aspect="auto")
        axes.plot([-0.5, count - 0.5], [-0.5, count - 0.5], color=page.muted, linewidth=0.8)
        axes.grid(visible=False)
        axes.set_xticks(range(count), names, rotation=90, fontsize=font)
        axes.set_yticks(range(count), names, fontsize=font)
        axes.set(xlabel="of hiding ...", ylabel="effect on ...")
        drawn.colorbar(image, ax=axes, label="Euclidean distance", extend=beyond, fraction=0.06, pad=0.02)


def finding(result: Impact) -> str:
    """What the matrix shows: the token whose column has the highest mean."""
    names = result.tokens[slice(*result.content)]
    if len(names) == 1:
        return f"“{literal(names[0], 24)}” stands alone: it has an effect on no other token"
    return f"“{literal(names[int(np.argmax(result.columns))], 24)}” has the largest effect on the other tokens"
