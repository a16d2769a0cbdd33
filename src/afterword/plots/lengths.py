"""Lengths of texts in tokens."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from .colours import LIGHT, Page, readable
from .figure import DASHES, figure, look
from .labels import literal

if TYPE_CHECKING:
    from ..analysis.lengths import Lengths


def draw_lengths(results: Sequence[Lengths], path: Path, title: str = "", page: Page = LIGHT) -> None:
    """The share of texts that are at most so long, a line for each result; a vertical line marks each limit.

    Args:
        results: results of `lengths`.
        path: see `figure`.
        title: above it; without one, the share of texts over the limit.
        page: its colours.
    """
    from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter

    total, over = sum(len(r.tokens) for r in results), sum(r.over for r in results)
    title = title or f"{100 * over / total:.1f} % of {total} texts are over the model's limit of tokens"
    subtitle = "share of texts by length in tokens, special tokens included"
    with figure(path, page=page, title=title, subtitle=subtitle) as axes:
        for i, r in enumerate(results):
            tokens, colour = np.sort(r.tokens), look(page, i)["color"]
            share = 100 * np.arange(len(tokens) + 1) / len(tokens)
            axes.step(
                [tokens[0], *tokens], share, where="post", gid="shares", color=colour, linestyle=DASHES[i % len(DASHES)]
            )
            height = 100 - 90 * (i + 0.5) / len(results)  # each name at another height, beside its line
            axes.annotate(
                literal(r.name), (r.quantile(height / 100), height), (5, 0), textcoords="offset points", va="center",
                fontsize=8, color=readable(colour, page),
                bbox={"facecolor": page.ground, "edgecolor": "none", "alpha": 0.8, "pad": 0.5},
            )  # fmt: skip
        for limit in sorted({r.limit for r in results if r.limit is not None}):
            axes.axvline(limit, color=page.muted, linewidth=0.8)
            axes.annotate(f"limit {limit}", (limit, 2), (3, 0), textcoords="offset points", color=page.muted)
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter(ScalarFormatter())
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set(xlabel="tokens of a text", ylabel="texts at most so long, %", ylim=(0, 101))
        axes.margins(x=0.08)
