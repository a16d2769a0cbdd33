"""``afterword analyse turning-point``: how many of a decoder's layers keep the best sentence vectors."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import options as o
from .analyse_inputs import as_text
from .drawing import check_plot, draw_plot
from .model import ModelChoice

if TYPE_CHECKING:
    from ..analysis.turning import Curve


def turning_point(
    model: o.Model,
    dev: Annotated[
        Path,
        typer.Option(
            "--dev",
            metavar="FILE",
            show_default=False,
            help="Development pairs with human scores: a .jsonl, .csv (both may be gzipped) or .parquet file with "
            "sentence1, sentence2 and score.",
        ),
    ],
    pool: Annotated[
        list[str] | None,
        typer.Option(
            "--pool", metavar="POOL", help="Pooling: mean or last. May be given several times. Default: both."
        ),
    ] = None,
    template: Annotated[
        list[str] | None,
        typer.Option(
            "--template",
            metavar="TEMPLATE",
            help="A template: its name, a string with {text}, or none. May be given several times. Default: bellm and "
            "none.",
        ),
    ] = None,
    margin: Annotated[
        float, typer.Option("--margin", min=0, metavar="X", help="Scores that differ by at most X count as equal.")
    ] = 0.01,
    plot: o.Plot = None,
    dark: o.Dark = False,
    max_length: o.MaxLength = None,
    batch_tokens: o.BatchTokens = None,
    device: o.Device = None,
    dtype: o.Dtype = None,
    products: o.Products = None,
    revision: o.Revision = None,
    trust_remote_code: o.Trust = False,
    as_json: o.AsJson = False,
) -> int:
    """Find the turning point: the layer after which a model's sentence vectors get worse.

    BeLLM gives the layers after it bidirectional attention.
    """
    from ..methods import classical
    from ..methods.serialize import parse_method
    from ..tasks.pairs import read_pairs

    check_plot(plot, dark)
    pairs = read_pairs(dev)
    asked = [(t, p) for t in template or ("bellm", "none") for p in pool or ("mean", "last")]
    specs = [f"bellm:last=auto,pool={p},template={_quoted(t)}" for t, p in asked]
    methods = [parse_method(spec) for spec in specs]
    from tqdm import tqdm

    from ..analysis.turning import degradation

    encoder = ModelChoice(model, device, dtype, max_length, revision, trust_remote_code, products).load(classical())
    named = {f"{p}, {'no' if t == 'none' else t} template": m for (t, p), m in zip(asked, methods, strict=True)}
    with tqdm(unit=" vectors", disable=not sys.stderr.isatty(), leave=False) as bar:
        options: dict[str, Any] = {"batch_tokens": batch_tokens, "show_progress_bar": bar.update}
        curves = degradation(encoder, pairs, named, margin=margin, **options)
    used = [s.replace("auto", str(c.turning.last)) if c.turning else None for s, c in zip(specs, curves, strict=True)]
    if plot is not None:
        from ..plots.curve import draw_degradation

        draw_plot(plot, dark, partial(draw_degradation, curves))
    rows = [{**c.to_json(), "method": m} for c, m in zip(curves, used, strict=True)]
    layers = encoder.backbone.facts.layers
    result = {"model": model, "layers": layers, "margin": margin, "curves": rows}
    typer.echo(as_text(result) if as_json else "\n".join(_curves(curves, used)))
    return 0


def _quoted(template: str) -> str:
    """A template as a value in ``--method NAME:template=...``."""
    from ..methods.templates import TEMPLATES

    return template if template == "none" or template in TEMPLATES else json.dumps(template, ensure_ascii=False)


def _curves(curves: Sequence[Curve], methods: Sequence[str | None]) -> Iterator[str]:
    wide = max(len(c.name) for c in curves)
    layers = len(curves[0].scores) - 1
    yield f"Spearman x 100 of {curves[0].pairs} pairs, by layers kept; * is the turning point"
    yield f"{'':{wide}}" + "".join(f"{t:8}" for t in range(layers + 1))
    for curve in curves:
        at = curve.turning.kept if curve.turning else None
        cells = (f"{100 * s:7.2f}{'*' if t == at else ' '}" for t, s in enumerate(curve.scores))
        yield f"{curve.name:{wide}} " + "".join(cells).rstrip()
    yield ""
    for curve, method in zip(curves, methods, strict=True):
        turning = curve.turning
        if turning is None:
            yield f"{curve.name}: {curve.note}"
            continue
        what = f"falls after {turning.kept} of {layers} layers" if turning.falls else "does not fall at its end"
        yield f"{curve.name}: {what} ({turning.agreement:.0%} of resamples agree): --method {shlex.quote(method or '')}"
