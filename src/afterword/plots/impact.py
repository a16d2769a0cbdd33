"""The impact matrix of one text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from .colours import LIGHT, Page
from .figure import figure
from .labels import literal

if TYPE_CHECKING:
    from ..analysis.impact import Impact


def draw_impact(result: Impact, path: Path, title: str = "", page: Page = LIGHT) -> None:
    """The content tokens' impact matrix as a heat map, as in Figure 1 of Ditto; large values are dark.

    Args:
        result: the result of `impact`.
        path: see `figure`.
        title: above it.
        page: its colours.
    """
    inside = slice(*result.content)
    names = [literal(token) for token in result.tokens[inside]]
    size = 1.6 + 0.26 * len(names)
    with figure(path, page=page, width=size + 0.8, height=size) as axes:
        axes.grid(visible=False)
        image = axes.imshow(result.matrix[inside, inside], cmap="Blues")
        axes.set_xticks(range(len(names)), names, rotation=90)
        axes.set_yticks(range(len(names)), names)
        axes.set(xlabel="masked as well", ylabel="masked and predicted", title=title)
        axes.figure.colorbar(image, ax=axes, label="Euclidean distance", shrink=0.8)
