"""Draw the loss of a training run, and its scores on dev."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .figure import draw

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_losses(curve: Path, path: Path, score: str, title: str = "") -> None:
    """Draw the loss over steps, and below it the scores on dev if they were measured.

    Args:
        curve: ``loss.jsonl`` of a training run.
        path: a .png, .svg or .pdf file.
        score: the key of the dev score that chose the checkpoint, such as "eval_dev_spearman_cosine"; different
            correlations on the same pairs are drawn too.
        title: the name of the run.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    rows = [json.loads(line) for line in curve.read_text("utf-8").splitlines()]
    panels = 1 + any(score in row for row in rows)
    draw(path, partial(plot, rows=rows, score=score), size=(6.4, 1 + 2.2 * panels), title=title, panels=(panels, 1))


def plot(losses: Axes, scores: Axes | None = None, *, rows: Sequence[Mapping[str, Any]], score: str) -> None:
    """Draw the losses, and on a second panel the dev scores: a ring marks the best of those that chose."""
    losses.plot(*_column(rows, "loss"), markersize=2.5)
    for row in rows:
        if "train_loss" in row:
            losses.axhline(row["train_loss"], color="C1", linewidth=0.8)
            losses.annotate(f"mean of {row['step']} steps: {row['train_loss']:.4g}", (0, row["train_loss"]))
    losses.set(ylabel="loss", xlabel="" if scores else "step")
    if scores is None:
        return
    for key in _scores(rows, score):
        steps, values = _column(rows, key)
        percent = [100 * value for value in values]
        scores.plot(steps, percent, label=key.split("_")[-2].capitalize())
        defined = [(value, step) for value, step in zip(percent, steps, strict=True) if not math.isnan(value)]
        if key == score and defined:
            best, at = max(defined)
            scores.scatter(at, best, s=120, facecolors="none", edgecolors="C0", zorder=3, gid="best")
    scores.set(ylabel="dev score × 100", xlabel="step", xlim=losses.get_xlim())
    scores.legend()


def _scores(rows: Sequence[Mapping[str, Any]], score: str) -> Iterator[str]:
    """The keys of the scores: the one that chose first, then those of different correlations with the same pairs."""
    start = score.rpartition("_")[0].rpartition("_")[0]
    keys = dict.fromkeys(key for row in rows for key in row)
    yield from [score, *(k for k in keys if k.startswith(f"{start}_") and k.endswith("_cosine") and k != score)]


def _column(rows: Sequence[Mapping[str, Any]], name: str) -> tuple[list[int], list[float]]:
    points = [(row["step"], math.nan if row[name] is None else row[name]) for row in rows if name in row]
    return [step for step, _ in points], [value for _, value in points]
