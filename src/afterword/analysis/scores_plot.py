"""Scores of several encoders by task, beside what papers report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

from .plots import COLOURS, figure


@dataclass(frozen=True)
class Series:
    """One encoder's scores.

    Attributes:
        name: in the legend.
        scores: by column; None where there is none.
        published: by a paper.
    """

    name: str
    scores: Sequence[float | None]
    published: bool = False


def draw_scores(columns: Sequence[str], series: Sequence[Series], path: Path, title: str = "", label: str = "") -> None:
    """One mark per score, a column per task; published rows are grey, each with a mark of its own.

    Args:
        columns: tasks.
        series: encoders.
        path: see `plots.figure`.
        title: above it.
        label: of the scores.
    """
    theirs, ours = cycle("ovsD^<>pPX*hd1234+x"), cycle(zip("oDs^vPX", COLOURS, strict=True))
    with figure(path, width=max(5.0, 2.5 + 0.7 * len(columns)), height=max(3.6, 1.2 + 0.17 * len(series))) as axes:
        for i, one in enumerate(series):
            shift = 0.5 * (i / max(len(series) - 1, 1) - 0.5)
            at = [x for x, score in enumerate(one.scores) if score is not None]
            mark, colour = (next(theirs), "#999999") if one.published else next(ours)
            name = f"{one.name} (published)" if one.published else one.name
            axes.plot([x + shift for x in at], [s for s in one.scores if s is not None], mark, color=colour, label=name)
        axes.set_xticks(range(len(columns)), list(columns), rotation=30, ha="right")
        axes.set(title=title, ylabel=label)
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
