"""``afterword analyse turning-point``: how many of a decoder's layers keep the best sentence vectors."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import options as o
from .analyse_inputs import Models, as_text, check_scores, distinct, short_names
from .drawing import check_plot
from .model import ModelChoice
from .progress import CountedBar

if TYPE_CHECKING:
    from ..encoder import Encoder
    from ..papers.turning import Curve
    from ..tasks.pairs import ScoredPairs

Devs = Annotated[
    list[Path],
    typer.Option(
        "--dev", metavar="FILE", show_default=False,
        help="Development pairs with human scores: a .jsonl, .csv (both may be gzipped) or .parquet file with "
        "sentence1, sentence2 and score. May be given several times: the curve is then the mean of theirs.",
    ),
]  # fmt: skip


@dataclass(frozen=True)
class Measured:
    """The curves of one model.

    Attributes:
        model: as it was given.
        layers: their number.
        curves: one per template and pool.
        methods: the method that each turning point asks for; None if there is none.
    """

    model: str
    layers: int
    curves: tuple[Curve, ...]
    methods: tuple[str | None, ...]

    def to_json(self, margin: float) -> dict[str, Any]:
        """All of it as plain data."""
        rows = [{**curve.to_json(), "method": m} for curve, m in zip(self.curves, self.methods, strict=True)]
        return {"model": self.model, "layers": self.layers, "margin": margin, "curves": rows}


def turning_point(
    model: Models,
    dev: Devs,
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
    revision: o.Revision = None,
    trust_remote_code: o.Trust = False,
    as_json: o.AsJson = False,
) -> int:
    """Find the turning point: the layer after which a model's sentence vectors get worse.

    BeLLM gives the layers after it bidirectional attention. All models are drawn into one plot.
    """
    from ..tasks.pairs import read_pairs

    check_plot(plot, dark)
    if revision is not None and len(model) > 1:
        raise typer.BadParameter("is that of one model: give one -m", param_hint="--revision")
    asked = [(t, p) for t in template or ("bellm", "none") for p in pool or ("mean", "last")]
    names = short_names(model)
    files = distinct([str(path) for path in dev], _stem, "--dev")
    sets = {name: read_pairs(Path(path)) for path, name in files.items()}
    check_scores(sets)
    choices = [ModelChoice(m, device, dtype, max_length, revision, trust_remote_code) for m in model]
    found = [_measure(choice, sets, asked, margin, batch_tokens) for choice in choices]
    named = [replace(c, name=_joined(names[f.model] * (len(model) > 1), c.name * (len(model) == 1 or len(asked) > 1)))
             for f in found for c in f.curves]  # fmt: skip
    if plot is not None:
        from ..papers import figure
        from ..papers.turning import plot as plot_curves

        title = "Scores by layers kept" if len(model) > 1 else f"{names[model[0]]}: scores by layers kept"
        figure.draw(plot, partial(plot_curves, curves=named), title=title, note=_note(sets), dark=dark)
    if as_json:
        results = [f.to_json(margin) for f in found]
        typer.echo(as_text(results if len(results) > 1 else results[0]))
    else:
        typer.echo("\n".join(_table(named, [m for f in found for m in f.methods], list(sets))))
    return 0


def _measure(
    choice: ModelChoice,
    sets: Mapping[str, ScoredPairs],
    asked: Sequence[tuple[str, str]],
    margin: float,
    batch_tokens: int | None,
) -> Measured:
    """The curves of one model, for each template and pool that was asked for."""
    from ..methods import classical, one_method
    from ..methods.serialize import parse_method

    specs = [f"bellm:last=auto,pool={p},template={_quoted(t)}" for t, p in asked]
    methods = [one_method(parse_method(spec), "a turning point") for spec in specs]
    from ..papers.turning import degradation

    encoder: Encoder = choice.load(classical())
    named = {f"{p}, {'no' if t == 'none' else t} template": m for (t, p), m in zip(asked, methods, strict=True)}
    with CountedBar("turning point", "vectors") as bar:
        options: dict[str, Any] = {"batch_tokens": batch_tokens, "show_progress_bar": bar.update}
        pairs = sets if len(sets) > 1 else next(iter(sets.values()))
        curves = degradation(encoder, pairs, named, margin=margin, **options)
    used = [s.replace("auto", str(c.turning.last)) if c.turning else None for s, c in zip(specs, curves, strict=True)]
    return Measured(choice.model, encoder.backbone.facts.layers, curves, tuple(used))


def _note(sets: Mapping[str, ScoredPairs]) -> str:
    pairs = sum(len(scored.gold) for scored in sets.values())
    of = next(iter(sets)) if len(sets) == 1 else f"the mean of {len(sets)} sets: {', '.join(sets)}"
    rings = "rings are turning points, grey if under half of the resamples agree"
    return f"{pairs} pairs, {of}; bands are 95 % intervals over resamples of the pairs, {rings}"


def _stem(path: str) -> str:
    name = Path(path).name.removesuffix(".gz")
    return name.rpartition(".")[0] or name


def _joined(*parts: str) -> str:
    return ", ".join(part for part in parts if part)


def _quoted(template: str) -> str:
    """A template as a value in ``--method NAME:template=...``."""
    from ..methods.templates import TEMPLATES

    return template if template == "none" or template in TEMPLATES else json.dumps(template, ensure_ascii=False)


def _table(curves: Sequence[Curve], methods: Sequence[str | None], sets: Sequence[str]) -> Iterator[str]:
    wide = max(len(c.name) for c in curves)
    most = max(len(c.scores) for c in curves)
    mean = f" in {len(sets)} sets ({', '.join(sets)}; --json has the scores of each)" if len(sets) > 1 else ""
    yield f"Spearman x 100 of {curves[0].pairs} pairs{mean}, by layers kept; * is the turning point"
    yield f"{'':{wide}}" + "".join(f"{t:8}" for t in range(most))
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
        layers = len(curve.scores) - 1
        what = f"falls after {turning.kept} of {layers} layers" if turning.falls else "does not fall at its end"
        yield f"{curve.name}: {what} ({turning.agreement:.0%} of resamples agree): --method {shlex.quote(method or '')}"
