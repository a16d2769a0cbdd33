"""A score for each attention head."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .colours import LIGHT, Page, text_on
from .figure import figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    Table = NDArray[np.floating[Any]]

UNDEFINED = "#808080"
"""The colour of a head without a score."""


def draw_heads(
    table: Table,
    path: Path,
    title: str = "",
    page: Page = LIGHT,
    *,
    subtitle: str = "",
    label: str = "",
    best: tuple[int, int] | None = None,
    chosen: tuple[int, int] | None = None,
) -> None:
    """A heat map with a number per head: a row per layer and a column per head, both counted from 1.

    The scale begins at the 5th percentile, so that one bad head does not take all the colours.

    Args:
        table: scores of heads (L, H), drawn times 100.
        path: see `figure`.
        title: above it.
        page: its colours.
        subtitle: what was measured.
        label: what the numbers are, beside the scale.
        best: a head that gets a solid frame, as (layer, head) from 0.
        chosen: a head that gets a dashed frame.
    """
    import matplotlib

    layers, heads = table.shape
    low, high = bounds(table)
    if cut := int((table < low).sum()):
        told = f"{cut} {'head has' if cut == 1 else 'heads have'} less than {100 * low:.0f}: one colour"
        subtitle = f"{subtitle}; {told}" if subtitle else told
    size = max(4.6, 1.9 + 0.38 * heads), max(1.6, 0.9 + 0.3 * layers)
    with figure(path, *size, title=title, subtitle=subtitle, page=page) as axes:
        scores, colours = (
            100 * np.ma.masked_invalid(table),
            matplotlib.colormaps["cividis"].with_extremes(bad=UNDEFINED),
        )
        image = axes.imshow(scores, aspect="auto", cmap=colours, vmin=100 * low, vmax=100 * high)
        drawn = axes.get_figure(root=True)
        assert drawn is not None
        drawn.colorbar(image, ax=axes, label=label, extend="min" if cut else "neither", pad=0.02)
        for layer, head, number, _, ink in cells(table):
            axes.text(head, layer, number, ha="center", va="center", color=ink, fontsize=7.5)
        for head_of, dash in ((best, "-"), (chosen, (0, (2, 1.4)))):
            if head_of is not None:
                _frame(axes, head_of, dash)
        axes.set_xticks(range(heads), [str(h + 1) for h in range(heads)])
        axes.set_yticks(range(layers), [str(k + 1) for k in range(layers)])
        axes.grid(visible=False)
        axes.set(xlabel="head", ylabel="layer")


def bounds(table: Table) -> tuple[float, float]:
    """The ends of the scale: the 5th percentile and the highest score; 0 and 1 if no head has a score."""
    known = table[~np.isnan(table)]
    return (float(np.percentile(known, 5, method="lower")), float(known.max())) if known.size else (0.0, 1.0)


def cells(table: Table) -> Iterator[tuple[int, int, str, str, str]]:
    """The layer, the head, the number, the colour behind it, and its own colour: black or white, as it is read."""
    import matplotlib
    from matplotlib.colors import Normalize, to_hex

    colours, scale = matplotlib.colormaps["cividis"], Normalize(*bounds(table), clip=True)
    drawn = np.asarray(colours(np.asarray(scale(np.nan_to_num(table)))))  # (L, H, 4)
    for (layer, head), value in np.ndenumerate(table):
        ground = UNDEFINED if np.isnan(value) else to_hex(drawn[layer, head])
        yield layer, head, "-" if np.isnan(value) else f"{100 * value:.0f}", ground, text_on(ground)


def _frame(axes: Axes, head: tuple[int, int], dash: Any) -> None:
    """A frame around a head, black on white, so that it is seen on every colour."""
    from matplotlib.patches import Rectangle

    for colour, width, style in (("#ffffff", 3.4, "-"), ("#000000", 1.8, dash)):
        corner = (head[1] - 0.5, head[0] - 0.5)
        axes.add_patch(Rectangle(corner, 1, 1, fill=False, ec=colour, lw=width, ls=style, clip_on=False, zorder=3))
