"""The loss of a training run, and its dev scores."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .colours import LIGHT, Page
from .figure import drawing, look
from .labels import End, label_ends

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    Points = tuple[list[int], list[float]]

FEW = 15
"""A curve of fewer points is drawn as it is: with more, its running mean is drawn on top."""


def draw_losses(curve: Path, path: Path, score: str, title: str = "", page: Page = LIGHT) -> None:
    """Plot the loss over steps, and below it the scores on dev if they were measured.

    Args:
        curve: ``loss.jsonl`` of a training run. A run that ended before its first line of losses has the mean of all.
        path: a .png, .svg or .pdf file.
        score: the key of the dev score that chose the checkpoint, as in "eval_dev_spearman_cosine"; other scores on
            the same pairs are drawn too.
        title: the name of the run, before what the figure shows.
        page: its colours.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    rows = [json.loads(line) for line in curve.read_text("utf-8").splitlines()]
    losses = _column(rows, "loss")
    scores = {key: _column(rows, key) for key in _scores(rows, score)}
    smooth = smoothed(losses[1])
    said = "; ".join(filter(None, [_of_losses((losses[0], smooth)), _of_scores(scores.get(score))]))
    every = len(losses[0]) >= FEW
    told = "pale: as logged; line: running mean" if every else ""
    with drawing(
        path, 6.4, 2.5 + 2.0 * bool(scores), title=": ".join(filter(None, [title, said])), subtitle=told, page=page
    ) as drawn:
        parts = drawn.subplots(1 + bool(scores), sharex=True, squeeze=False)[:, 0]
        colour = look(page, 0)["color"]
        if every:
            parts[0].plot(*losses, color=colour, alpha=0.35, linewidth=0.9)
        parts[0].plot(losses[0], smooth, color=colour, marker=None if every else "o")
        if not losses[0]:
            _draw_mean(parts[0], rows, page)
        parts[0].set(ylabel="loss")
        parts[-1].set(xlabel="step")
        parts[-1].xaxis.get_major_locator().set_params(integer=True)
        if scores:
            _draw_scores(parts[1], scores, score, page)


def smoothed(values: Sequence[float]) -> list[float]:
    """The running mean over a fifteenth of the values on each side; values as they are if there are fewer than `FEW`.

    >>> smoothed([1.0, 2.0])
    [1.0, 2.0]
    """
    if len(values) < FEW:
        return list(values)
    around = len(values) // FEW
    return [float(np.mean(values[max(i - around, 0) : i + around + 1])) for i in range(len(values))]


def _draw_mean(axes: Axes, rows: Sequence[Mapping[str, Any]], page: Page) -> None:
    """The mean over all steps, if that alone was logged."""
    for row in rows:
        if "train_loss" in row:
            axes.plot([0, row["step"]], [row["train_loss"]] * 2, color=look(page, 0)["color"])
            axes.annotate(
                f"mean of {row['step']} steps: {row['train_loss']:.4g}", (0, row["train_loss"]), (0, 5),
                textcoords="offset points",
            )  # fmt: skip


def _draw_scores(axes: Axes, scores: Mapping[str, Points], chosen: str, page: Page) -> None:
    ends = []
    for i, (key, (steps, values)) in enumerate(scores.items(), 1):
        percent = [100 * value for value in values]
        axes.plot(steps, percent, **look(page, i))
        ends.append(End(steps[-1], percent[-1], _name(key), look(page, i)["color"]))
        if key == chosen:
            best = int(np.nanargmax(percent)) if not all(map(math.isnan, percent)) else 0
            axes.plot(steps[best], percent[best], "o", ms=11, mfc="none", mec=look(page, i)["color"], gid="best")
    axes.set(ylabel="dev score × 100")
    label_ends(axes, ends, page)


def _scores(rows: Sequence[Mapping[str, Any]], score: str) -> list[str]:
    """The keys of the scores: the given one first, then those of other correlations with the same pairs."""
    start = score.rpartition("_")[0].rpartition("_")[0]
    keys = dict.fromkeys(key for row in rows for key in row)
    same = [key for key in keys if key.startswith(f"{start}_") and key.endswith("_cosine") and key != score]
    return [score, *same] if score in keys else []


def _name(key: str) -> str:
    """The name of a score.

    >>> _name("eval_dev_spearman_cosine")
    'Spearman'
    """
    return key.split("_")[-2].capitalize()


def _of_losses(losses: Points) -> str:
    steps, values = losses
    return f"loss {values[0]:.3g} to {values[-1]:.3g} in {steps[-1]} steps" if len(steps) > 1 else ""


def _of_scores(points: Points | None) -> str:
    if points is None or all(map(math.isnan, points[1])):
        return ""
    best = int(np.nanargmax(points[1]))
    return f"dev {100 * points[1][best]:.2f} at best, step {points[0][best]}"


def _column(rows: Sequence[Mapping[str, Any]], name: str) -> Points:
    points = [(row["step"], math.nan if row[name] is None else row[name]) for row in rows if name in row]
    return [step for step, _ in points], [value for _, value in points]
