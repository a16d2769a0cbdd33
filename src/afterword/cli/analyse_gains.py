"""``afterword analyse gains``: where one encoder is better than another, by kind of sentence pair."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from . import options as o
from .analyse_inputs import Models, as_text, check_scores, encoders
from .model import read_methods
from .page import Column, page_width, table

if TYPE_CHECKING:
    from ..papers.gains import Gain


def gains(
    model: Models,
    pairs: Annotated[
        Path,
        typer.Option(
            "--pairs",
            metavar="FILE",
            show_default=False,
            help="Rows of sentence1, sentence2, score and, if any, subset.",
        ),
    ],
    method: o.Methods = None,
    max_length: o.MaxLength = None,
    batch_tokens: o.BatchTokens = None,
    device: o.Device = None,
    dtype: o.Dtype = None,
    trust_remote_code: o.Trust = False,
    as_json: o.AsJson = False,
) -> int:
    """Print the gain of a second encoder over a first, by kind of sentence pair.

    Give one model and two methods, two models, or two models and two methods: the first method is then that of the
    first model. The gain is the difference of Spearman's correlations with the scores. Kinds: the subset that the
    data name, length, negation, where the texts differ, and how many words they share.
    """  # fmt: skip
    chosen = _chosen(model, method or [])
    from ..papers.gains import gains as measure
    from ..tasks.pairs import read_pairs

    scored, both = read_pairs(pairs), []
    check_scores({pairs.name: scored})
    for name, spec in chosen:
        found = encoders([name], read_methods(spec), device, dtype, max_length, trust_remote_code, batch_tokens)
        both += [encoder for _, encoder, _ in found]
    results = measure(both[0], both[1], scored)
    if as_json:
        typer.echo(as_text([r.to_json() for r in results]))
        return 0
    for number, (name, spec) in zip(("first ", "second"), chosen, strict=True):
        typer.echo(" ".join([number, name, *spec]))
    typer.echo("\n".join(_lines(results)))
    return 0


def _chosen(models: Sequence[str], methods: Sequence[str]) -> list[tuple[str, list[str]]]:
    """The model and the method of each of the two encoders.

    Raises:
        typer.BadParameter: they are not two, or equal.
    """
    many = max(len(models), len(methods))
    if many != 2 or len(methods) > 2 or len(models) > 2:
        raise typer.BadParameter(
            f"{len(models)} x --model and {len(methods)} x --method are given: give two of one of them, or of both",
            param_hint="--method",
        )
    specs = [[m] for m in methods] * (2 // len(methods)) if methods else [[], []]
    chosen = list(zip(list(models) * (2 // len(models)), specs, strict=True))
    if chosen[0] == chosen[1]:
        raise typer.BadParameter("both encoders are the same: give two methods or two models", param_hint="--method")
    return chosen


def _lines(results: Sequence[Gain]) -> list[str]:
    """A line for each kind; * marks an interval without 0."""
    rows = [
        (r.by, r.kind, f"{r.pairs:,}", _times_100(r.first), _times_100(r.second), *_with_interval(r.gain, r.interval),
         *_with_interval(r.others, r.others_interval), "-" if math.isnan(r.forward) else f"{100 * r.forward:.0f} %")
        for r in results
    ]  # fmt: skip
    known = sum(not math.isnan(interval[0]) for r in results for interval in (r.interval, r.others_interval))
    heads = ("by", "kind", "pairs", "first", "second", "gain", "95 %", "against others", "95 %", "forward")
    columns = [
        Column(cells, "text" if i < 2 else "score", head)
        for i, (cells, head) in enumerate(zip(zip(*rows, strict=True), heads, strict=True))
    ]
    return [
        "Spearman x 100; * is an interval without 0; forward: share of attention to later tokens in the bidirectional "
        "layers of the second",
        *table(columns, page_width()),
        f"about one in twenty of such intervals leaves 0 by chance alone: of these {known}, {known / 20:.0f}",
    ]


def _times_100(value: float) -> str:
    return "-" if math.isnan(value) else f"{100 * value:.2f}"


def _with_interval(value: float, interval: tuple[float, float]) -> tuple[str, str]:
    low, high = (100 * end for end in interval)
    if math.isnan(value) or math.isnan(low):
        return _times_100(value) + " ", "-"
    return f"{100 * value:+.2f}" + ("*" if low > 0 or high < 0 else " "), f"{low:+.2f} to {high:+.2f}"
