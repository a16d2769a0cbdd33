"""Attention matrices of one text, side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from .colours import LIGHT, Page, mix, text_on
from .figure import drawing
from .labels import literal, wrapped

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage

    from ..analysis.attention import AttentionMatrix

CELL = 0.24  # inches of a token
ACROSS = 3  # panels beside each other
WRITTEN = 18  # up to so many tokens, the head that won is written into each cell


def draw_attention(
    views: Sequence[tuple[str, AttentionMatrix]], path: Path, text: str = "", *, page: Page = LIGHT
) -> None:
    """A panel for each matrix: rows are tokens, columns what they attend to; more weight is darker (lighter if dark).

    In backward attention the columns are those that look back at a token, and that it takes in.

    Heads as in Figure 2 of Ditto; ReBA's matrix, with the weights of the tokens above it, as in its Figures 1 and 2.
    In a backward matrix of few tokens each cell names the layer and head that won the maximum.

    Args:
        views: the name of the encoder and its matrix, at least one.
        path: see `figure`.
        text: the text, for the subtitle.
        page: its colours.
    """
    most = max(len(view.tokens) for _, view in views)
    across = min(ACROSS, len(views))
    down, side = -(-len(views) // across), max(2.2, CELL * most)
    names = " and ".join(dict.fromkeys(name for name, _ in views))
    told = f"{names}; “{text}”, {most} tokens; the shade goes by the square root of the weight"
    if any(view.layer is not None for _, view in views):
        told += "; by backward attention a token takes in those that look back at it"
    bars, darkest = any(v.weights is not None for _, v in views), max(float(v.matrix.max()) for _, v in views)
    wide, high = across * (side + 0.9) + 1.2, down * (side + 1.5 + 0.6 * bars)
    with drawing(path, wide, high, title=_finding(views), subtitle=told, page=page) as drawn:
        panels = drawn.subplots(down, across, squeeze=False)
        for axes in panels.ravel()[len(views) :]:
            axes.set_axis_off()
        for axes, (name, view) in zip(panels.ravel(), views, strict=False):
            image = _panel(axes, view, darkest, page)
            title = view.name if len({n for n, _ in views}) == 1 else f"{name}: {view.name}"
            title = "\n".join(wrapped(literal(title, 80), side + 0.6, 10))
            axes.set_title(title)
        ticks = [t for t in (0.01, 0.1, 0.25, 0.5, 1.0) if t <= darkest]
        drawn.colorbar(image, ax=panels, label="attention weight", shrink=0.6, ticks=ticks, format="%g")


def _panel(axes: Axes, view: AttentionMatrix, darkest: float, page: Page) -> AxesImage:
    from matplotlib.colors import LinearSegmentedColormap, PowerNorm

    darker = mix(page.series[0], page.ink, 0.7)
    shades = LinearSegmentedColormap.from_list("weights", [page.ground, page.series[0], darker])
    norm = PowerNorm(0.5, 0, darkest)
    image = axes.imshow(view.matrix, cmap=shades, norm=norm)
    tokens = [literal(token, 16) for token in view.tokens]
    axes.set_xticks(range(len(tokens)), tokens, rotation=90, fontsize=8)
    axes.set_yticks(range(len(tokens)), tokens, fontsize=8)
    axes.grid(visible=False)
    axes.tick_params(length=0)
    axes.set(xlabel="looks at" if view.layer is None else "takes in", ylabel="token")
    if view.layer is not None and view.head is not None and len(tokens) <= WRITTEN:
        for i, k in np.argwhere(view.layer):
            r, g, b, _ = shades(norm(view.matrix[i, k]))
            colour = text_on(f"#{round(255 * r):02x}{round(255 * g):02x}{round(255 * b):02x}")
            won = f"{view.layer[i, k]}-{view.head[i, k]}"
            axes.text(k, i, won, ha="center", va="center", fontsize=5.5, color=colour)
    if view.weights is not None:
        bars = axes.inset_axes((0, 1.02, 1, 26 / 72 / (CELL * max(len(tokens), 9))), sharex=axes)
        bars.bar(range(len(tokens)), view.weights, color=page.series[0], width=0.8)
        bars.tick_params(labelbottom=False, length=0, labelsize=7)
        bars.set_yticks([0, float(np.round(view.weights.max(), 2))])
        bars.set_ylabel("weight", fontsize=7)
        bars.grid(visible=False)
    return image


def _finding(views: Sequence[tuple[str, AttentionMatrix]]) -> str:
    """What can be seen, of one matrix; of several, what they are."""
    if len(views) > 1:
        return "Plain and backward attention" if any(view.layer is not None for _, view in views) else "Attention"
    ((_, view),) = views
    if view.layer is not None:
        won = Counter(int(n) for n in view.layer[view.layer > 0])
        layer, count = won.most_common(1)[0]
        return f"Backward attention: layer {layer} has the strongest weight of {count / won.total():.0%} of the pairs"
    strongest = np.argsort(-view.matrix.diagonal(), kind="stable")[:3]
    named = ", ".join(literal(view.tokens[i], 16) for i in strongest)
    return f"{view.name[:1].upper()}{view.name[1:]}: the tokens that look most at themselves are {named}"
