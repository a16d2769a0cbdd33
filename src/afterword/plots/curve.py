"""Score by the number of layers that are kept."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .colours import LIGHT, Page
from .figure import DASHES, drawing, look
from .labels import End, label_ends

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..analysis.turning import Curve

UNSURE = 0.5
"""A turning point that fewer of the resamples share has a grey ring."""


def draw_degradation(
    curves: Sequence[Curve],
    path: Path,
    title: str = "",
    page: Page = LIGHT,
    *,
    subtitle: str = "",
    looks: Sequence[tuple[int, int]] = (),
) -> None:
    """Plot scores over the number of layers kept, as in Figure 4 of BeLLM.

    A ring marks the turning point of each curve that falls at its end, grey where fewer than half of the resamples
    agree; a band is the 95 % interval. The bars below are the layers that BeLLM makes bidirectional.

    Args:
        curves: as `degradation` gives them, at least one.
        path: see `figure`.
        title: above it; by default what `finding` says.
        page: its colours.
        subtitle: what was measured.
        looks: for each curve, the numbers of its colour and of its dash; by default each has a colour of its own.
    """
    from matplotlib.ticker import MaxNLocator

    looks = looks or [(i, 0) for i in range(len(curves))]
    falling = [i for i, curve in enumerate(curves) if curve.turning is not None and curve.turning.falls]
    below = 0.16 * len(falling) + 0.12 * bool(falling)
    with drawing(path, 6.6, 3.7 + below, title=title or finding(curves), subtitle=subtitle, page=page) as drawn:
        parts = drawn.subplots(
            1 + bool(falling), sharex=True, squeeze=False, height_ratios=[3.7, below][: 1 + bool(below)]
        )
        axes = parts[0, 0]
        faint = 0.14 if len(curves) <= 4 else 0.05
        ends = [_draw_curve(axes, curve, page, of, faint) for curve, of in zip(curves, looks, strict=True)]
        layers = sorted({len(curve.scores) - 1 for curve in curves})
        axes.set(ylabel="Spearman's correlation × 100")
        if falling:
            _draw_bars(parts[1, 0], [(curves[i], looks[i]) for i in falling], page)
        parts[-1, 0].set(xlabel=f"layers kept of {layers[0]}" if len(layers) == 1 else "layers kept")
        parts[-1, 0].xaxis.set_major_locator(MaxNLocator(integer=True))
        label_ends(axes, [end for end in ends if end is not None], page)


def finding(curves: Sequence[Curve]) -> str:
    """What the curves show, in a few words.

    Args:
        curves: at least one.
    """
    points = [curve.turning for curve in curves]
    unsure = [point.agreement for point in points if point is not None and point.falls and point.agreement < UNSURE]
    if len(curves) > 1:
        falling = sum(point is not None and point.falls for point in points)
        told = f"{falling} of {len(curves)} curves fall before the last layer"
        return f"{told}, {len(unsure)} of them without the agreement of half of the resamples" if unsure else told
    (point,), layers = points, len(curves[0].scores) - 1
    if point is None:
        return "no turning point: the curve is undefined"
    if not point.falls:
        return "scores do not fall at the end"
    told = f"scores fall after {point.kept} of {layers} layers"
    return f"{told}, as in only {unsure[0]:.0%} of the resamples" if unsure else told


def _draw_curve(axes: Axes, curve: Curve, page: Page, of: tuple[int, int], faint: float) -> End | None:
    """Draw a curve with its band and its ring; where its name belongs, if it has a point."""
    style, percent = look(page, of[0]), [100 * score for score in curve.scores]
    axes.plot(percent, **style, linestyle=DASHES[of[1] % len(DASHES)])
    if curve.band:
        low, high = ([100 * edge for edge in side] for side in zip(*curve.band, strict=True))
        axes.fill_between(range(len(percent)), low, high, color=style["color"], alpha=faint, linewidth=0)
    point = curve.turning
    if point is not None and point.falls:
        ring = page.muted if point.agreement < UNSURE else style["color"]
        axes.plot(point.kept, percent[point.kept], "o", ms=12, mfc="none", mec=ring, mew=1.4, gid="turning-point")
    known = [(t, score) for t, score in enumerate(percent) if score == score]
    return End(*known[-1], curve.name, style["color"]) if known else None


def _draw_bars(axes: Axes, curves: Sequence[tuple[Curve, tuple[int, int]]], page: Page) -> None:
    """A bar per falling curve, from its turning point to its last layer."""
    for i, (curve, of) in enumerate(curves):
        assert curve.turning is not None
        colour, kept, layers = look(page, of[0])["color"], curve.turning.kept, len(curve.scores) - 1
        dash = DASHES[of[1] % len(DASHES)]
        axes.plot(kept, -i, **{**look(page, of[0]), "markersize": 3.5})
        axes.barh(-i, layers - kept, 0.62, kept, color=f"{colour}40", edgecolor=colour, linestyle=dash, linewidth=0.9)
    axes.set(yticks=[], ylim=(0.6 - len(curves), 0.6))
    axes.set_ylabel("made\nboth-ways", rotation=0, ha="right", va="center", fontsize=8, color=page.ink)
    axes.spines["left"].set_visible(False)
