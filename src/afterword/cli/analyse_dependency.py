"""``afterword analyse dependency``: how far the pivot goes with the other tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from . import options as o
from .analyse_inputs import Models, PairFile, as_text, encoders, texts_of
from .drawing import check_plot
from .model import read_methods

if TYPE_CHECKING:
    from ..papers.dependency import Dependency


def dependency(
    model: Models,
    input: o.Input = None,
    pairs: PairFile = None,
    format: o.Format = None,
    field: o.Field = None,
    method: o.Methods = None,
    pivot: Annotated[
        Literal["last", "first"] | None,
        typer.Option(
            "--pivot",
            metavar="TOKEN",
            help="The pivot, the token that represents a sentence: last or first. Default: last in a causal model, "
            "else first.",
        ),
    ] = None,
    plot: o.Plot = None,
    dark: o.Dark = False,
    max_length: o.MaxLength = None,
    batch_tokens: o.BatchTokens = None,
    device: o.Device = None,
    dtype: o.Dtype = None,
    trust_remote_code: o.Trust = False,
    as_json: o.AsJson = False,
) -> int:
    """Measure how much each sentence's pivot token depends on its other tokens.

    It is Spearman's correlation between their hidden states, for each model with each method.
    """  # fmt: skip
    check_plot(plot, dark)
    texts, methods = texts_of(input, pairs, format, field), read_methods(method)
    from ..papers.dependency import dependency as measure

    results = []
    for name, encoder, limits in encoders(model, methods, device, dtype, max_length, trust_remote_code, batch_tokens):
        results.append(measure(encoder, texts, pivot, name=name, limits=limits))
    if plot is not None:
        from ..papers import figure
        from ..papers.dependency import plot as plot_boxes

        title, size = "Dependency of the pivot on the other tokens", (6.6, 1.6 + 0.5 * len(results))
        draw = partial(plot_boxes, results=results)
        figure.draw(plot, draw, size=size, title=title, note=_note(results), dark=dark)
    typer.echo(as_text([r.to_json() for r in results]) if as_json else "\n".join(_dependencies(results)))
    return 0


def _note(results: Sequence[Dependency]) -> str:
    left_out = max(f.undefined for f in results)
    more = f", up to {left_out} of one token left out" if left_out else ""
    return f"{len(results[0].values)} sentences{more}; triangles are means"


def _dependencies(results: Sequence[Dependency]) -> Iterator[str]:
    wide = max(len(f.name) for f in results)
    yield f"{'':{wide}}  pivot   mean  quartiles"
    for f in results:
        low, middle, high = f.quartiles
        more = f"  ({f.undefined} sentences of one token left out)" if f.undefined else ""
        yield f"{f.name:{wide}}  {f.pivot:5} {f.mean:6.3f}  {low:.3f} {middle:.3f} {high:.3f}{more}"
