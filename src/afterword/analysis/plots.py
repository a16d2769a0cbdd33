"""All figures, in one style. Only this file uses matplotlib, and imports it only when a figure is drawn."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InputError, MissingExtra
from ..files.atomic import check_target

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from .dependency import Dependency
    from .impact import Impact
    from .turning import Curve

KINDS = (".png", ".svg", ".pdf")

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#444444")
"""The palette of Okabe and Ito, which colour-blind readers can distinguish."""

STYLE: dict[str, Any] = {
    "figure.dpi": 150,
    "figure.constrained_layout.use": True,
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "axes.prop_cycle": f"cycler('color', {list(COLOURS)})",
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.6,
    "lines.markersize": 4,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "afterword",
}


@contextmanager
def figure(path: Path, width: float = 6.0, height: float = 3.6) -> Iterator[Axes]:
    """A context that gives the axes of a new figure and saves it at the end, unless there was an error.

    No window is opened, and no global state of matplotlib is changed.

    Args:
        path: a .png, .svg or .pdf file.
        width: in inches.
        height: in inches.

    Yields:
        The axes to draw on.

    Raises:
        InputError: the file has another ending.
        MissingExtra: matplotlib is not installed.
    """
    check(path)
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(STYLE):
        drawn = Figure(figsize=(width, height))
        yield drawn.add_subplot()
        drawn.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def check(path: Path) -> None:
    """Check, before a long computation, that a figure can be written to this file.

    Raises:
        InputError: the file has another ending than `KINDS`.
        DataError: it is a folder, or would lie in none.
        MissingExtra: matplotlib is not installed.
    """
    if path.suffix not in KINDS:
        raise InputError(f"{path} is no figure: give a file that ends in {', '.join(KINDS)}")
    check_target(path)
    try:
        import matplotlib  # noqa: F401
    except ModuleNotFoundError:
        raise MissingExtra("matplotlib", "plots") from None


def draw_degradation(curves: Sequence[Curve], path: Path, title: str = "") -> None:
    """Plot scores over the number of layers kept, as in Figure 4 of BeLLM; a ring marks each turning point.

    Args:
        curves: as `degradation` gives them.
        path: see `figure`.
        title: above it.
    """
    from matplotlib.ticker import MaxNLocator

    with figure(path) as axes:
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


def draw_dependency(results: Sequence[Dependency], path: Path, title: str = "") -> None:
    """A box plot with one box per model, as in Figures 2 and 5 of BeLLM; a diamond and a number show the mean.

    Args:
        results: results of `dependency`.
        path: see `figure`.
        title: above it.
    """
    line = {"color": COLOURS[-1]}
    with figure(path, width=max(3.2, 1.6 + 1.3 * len(results))) as axes:
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


def draw_heads(table: NDArray[np.floating[Any]], path: Path, title: str = "") -> None:
    """A heat map with a number per head: a row per layer and a column per head, both counted from 1.

    Args:
        table: scores of heads (L, H), drawn times 100.
        path: see `figure`.
        title: above it.
    """
    layers, heads = table.shape
    with figure(path, width=1.6 + 0.38 * heads, height=0.9 + 0.3 * layers) as axes:
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


def draw_impact(result: Impact, path: Path, title: str = "") -> None:
    """The content tokens' impact matrix as a heat map, as in Figure 1 of Ditto; large values are dark.

    Args:
        result: the result of `impact`.
        path: see `figure`.
        title: above it.
    """
    inside = slice(*result.content)
    names = [token.replace("$", r"\$") for token in result.tokens[inside]]  # matplotlib reads $ as a formula
    size = 1.6 + 0.26 * len(names)
    with figure(path, width=size + 0.8, height=size) as axes:
        axes.grid(visible=False)
        image = axes.imshow(result.matrix[inside, inside], cmap="Blues")
        axes.set_xticks(range(len(names)), names, rotation=90)
        axes.set_yticks(range(len(names)), names)
        axes.set(xlabel="masked as well", ylabel="masked and predicted", title=title)
        axes.figure.colorbar(image, ax=axes, label="Euclidean distance", shrink=0.8)


@dataclass(frozen=True)
class Series:
    """One encoder's scores.

    Attributes:
        name: name in the legend.
        scores: one per column; None for a missing one.
        published: whether they are a paper's.
    """

    name: str
    scores: Sequence[float | None]
    published: bool = False


def draw_scores(columns: Sequence[str], series: Sequence[Series], path: Path, title: str = "", label: str = "") -> None:
    """Plot a marker per score, in a column per task; published series are grey, with their names at the last points.

    Args:
        columns: names of the tasks.
        series: the scores of each encoder.
        path: see `figure`.
        title: above it.
        label: label of the axis of scores.
    """
    theirs, ours = cycle("ovsD^<>pPX*hd1234+x"), cycle(zip("oDs^vPX", COLOURS, strict=True))
    ends: list[tuple[float, float, str]] = []
    with figure(path, width=max(5.0, 2.5 + 0.7 * len(columns)), height=max(3.6, 1.2 + 0.17 * len(series))) as axes:
        for i, one in enumerate(series):
            shift = 0.5 * (i / max(len(series) - 1, 1) - 0.5)
            at = [x for x, score in enumerate(one.scores) if score is not None]
            mark, colour = (next(theirs), "#999999") if one.published else next(ours)
            scores = [s for s in one.scores if s is not None]
            name = None if one.published else one.name
            axes.plot([x + shift for x in at], scores, mark, color=colour, label=name)
            if one.published and at:
                ends.append((at[-1] + shift, scores[-1], f"{one.name} (published)"))
        _label_ends(axes, ends, len(columns) - 0.4)
        axes.set_xticks(range(len(columns)), list(columns), rotation=30, ha="right")
        axes.set(title=title, ylabel=label)
        if any(not one.published for one in series):
            axes.legend(loc="best")


def _label_ends(axes: Axes, ends: Sequence[tuple[float, float, str]], right: float) -> None:
    """Write names to the right of points, far enough from each other to be read, each with a line to its point."""
    low, high = axes.get_ylim()
    ends, places = sorted(ends, key=lambda end: end[1]), [-math.inf]
    for _, y, _ in ends:
        places.append(max(y, places[-1] + (high - low) / 22))
    down = max(places[-1] - high, 0)
    arrow = {"arrowstyle": "-", "color": "#cccccc", "linewidth": 0.6, "relpos": (0, 0.5)}
    for (x, y, name), place in zip(ends, places[1:], strict=True):
        axes.annotate(
            name, (x, y), (right, place - down), annotation_clip=False, fontsize=7, color="#666666", va="center",
            arrowprops=arrow,
        )  # fmt: skip


def draw_losses(curve: Path, path: Path, score: str, title: str = "") -> None:
    """Plot the loss over steps, and Spearman's correlation on dev if it was measured.

    Args:
        curve: ``loss.jsonl`` of a training run.
        path: a .png, .svg or .pdf file.
        score: the key of the dev score in that file.
        title: above it.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    rows = [json.loads(line) for line in curve.read_text("utf-8").splitlines()]
    with figure(path) as axes:
        axes.plot(*_column(rows, "loss"), color=COLOURS[0])
        axes.set(xlabel="step", ylabel="loss", title=title)
        steps, scores = _column(rows, score)
        if steps:
            beside = axes.twinx()
            beside.plot(steps, [100 * s for s in scores], marker="o", color=COLOURS[1])
            beside.set_ylabel("dev: Spearman's correlation × 100", color=COLOURS[1])
            beside.grid(False)


def _column(rows: list[dict[str, float]], name: str) -> tuple[list[float], list[float]]:
    points = [(row["step"], row[name]) for row in rows if name in row]
    return [step for step, _ in points], [value for _, value in points]
