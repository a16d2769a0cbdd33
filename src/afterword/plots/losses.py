"""The loss of a training run, and its dev scores."""

from __future__ import annotations

import json
from pathlib import Path

from .figure import COLOURS, figure


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
