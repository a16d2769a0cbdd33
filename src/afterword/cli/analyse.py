"""``afterword analyse``: the papers' measurements of a model's layers, tokens and vectors."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from . import options as o
from .help import Verb, Verbs
from .inputs import items_of, open_reader
from .model import ModelChoice, read_methods
from .page import one_line

if TYPE_CHECKING:
    from ..analysis.dependency import Dependency
    from ..analysis.representative import RepresentativeWords
    from ..analysis.turning import Curve
    from ..encode.limits import Limits
    from ..encoder import Encoder
    from ..methods import Method

analyse = typer.Typer(help="Measure a model's layers, tokens and vectors, as the papers do.", cls=Verbs)


@analyse.callback(invoke_without_command=True)
def _root(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


Models = Annotated[
    list[str],
    typer.Option(
        "-m", "--model", show_default=False, metavar="MODEL",
        help="A folder, or a model on the Hugging Face Hub. May be given several times, to compare models.",
    ),
]  # fmt: skip
PairFile = Annotated[
    Path | None,
    typer.Option("--pairs", metavar="FILE", help="Use the texts in the columns sentence1 and sentence2 of this file."),
]
Plot = Annotated[
    Path | None, typer.Option("--plot", metavar="FILE", help="Draw a plot to this .png, .svg or .pdf file.")
]


@analyse.command("turning-point", cls=Verb)
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
    plot: Plot = None,
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

    _check_plot(plot)
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
        from ..analysis.plots import draw_degradation

        draw_degradation(curves, plot, f"{_short(model)}, {len(pairs.gold)} pairs")
    rows = [{**c.to_json(), "method": m} for c, m in zip(curves, used, strict=True)]
    layers = encoder.backbone.facts.layers
    result = {"model": model, "layers": layers, "margin": margin, "curves": rows}
    typer.echo(_json(result) if as_json else "\n".join(_curves(curves, used)))
    return 0


@analyse.command("dependency", cls=Verb)
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
    plot: Plot = None,
    max_length: o.MaxLength = None,
    batch_tokens: o.BatchTokens = None,
    device: o.Device = None,
    dtype: o.Dtype = None,
    products: o.Products = None,
    trust_remote_code: o.Trust = False,
    as_json: o.AsJson = False,
) -> int:
    """Measure how much each sentence's pivot token depends on its other tokens.

    It is Spearman's correlation between their hidden states, for each model with each method.
    """  # fmt: skip
    _check_plot(plot)
    texts, methods = _texts(input, pairs, format, field), read_methods(method)
    from ..analysis.dependency import dependency as measure

    results = []
    for name, encoder, limits in _encoders(
        model, methods, device, dtype, products, max_length, trust_remote_code, batch_tokens
    ):
        results.append(measure(encoder, texts, pivot, name=name, limits=limits))
    if plot is not None:
        from ..analysis.plots import draw_dependency

        draw_dependency(results, plot, f"{len(texts)} sentences")
    typer.echo(_json([r.to_json() for r in results]) if as_json else "\n".join(_dependencies(results)))
    return 0


@analyse.command("words", cls=Verb)
def words(
    model: Models,
    frequencies: Annotated[
        Path,
        typer.Option(
            "--frequencies",
            metavar="FILE",
            show_default=False,
            help="Count word frequencies in this file: lines of a word and its count, or a plain text.",
        ),
    ],
    input: o.Input = None,
    pairs: PairFile = None,
    format: o.Format = None,
    field: o.Field = None,
    method: Annotated[
        list[str] | None,
        typer.Option("--method", metavar="METHOD", help="A method. May be given several times. Default: bellm."),
    ] = None,
    top: Annotated[
        int, typer.Option("--top", min=1, metavar="N", help="Treat the N most frequent words as high-frequency words.")
    ] = 100,
    head: Annotated[
        str | None,
        typer.Option(
            "--head", metavar="MODEL", help="Use the language-modelling head of this model instead of the model's own."
        ),
    ] = None,
    show: Annotated[int, typer.Option("--show", min=0, metavar="N", help="Print the words of N texts.")] = 5,
    max_length: o.MaxLength = None,
    batch_tokens: o.BatchTokens = None,
    device: o.Device = None,
    dtype: o.Dtype = None,
    products: o.Products = None,
    trust_remote_code: o.Trust = False,
    as_json: o.AsJson = False,
) -> int:
    """Print the word that the language-modelling head predicts after the last token of each text.

    Also print how often that word is not a high-frequency word (BeLLM's representative words).
    """  # fmt: skip
    from ..analysis.word_counts import read_counts

    texts, counts, results = _texts(input, pairs, format, field), read_counts(frequencies), []
    methods = read_methods(method or ["bellm"])
    from ..analysis.representative import representative_words

    for name, encoder, limits in _encoders(
        model, methods, device, dtype, products, max_length, trust_remote_code, batch_tokens
    ):
        results.append(representative_words(encoder, texts, counts, top=top, head=head, name=name, limits=limits))
    typer.echo(_json([r.to_json() for r in results]) if as_json else "\n".join(_words(results, texts[:show])))
    return 0


@analyse.command("impact", cls=Verb)
def impact(
    model: o.Model,
    input: o.Input = None,
    pairs: PairFile = None,
    format: o.Format = None,
    field: o.Field = None,
    corpus: Annotated[
        Path | None,
        typer.Option(
            "--corpus", metavar="FILE", help="Compute TF-IDF on this .txt file, one text a line. Default: the texts."
        ),
    ] = None,
    first: Annotated[
        int,
        typer.Option(
            "--first", min=1, metavar="N", help="Use the first N texts. A text of k tokens is run k*k/2 times."
        ),
    ] = 200,
    heads: Annotated[int, typer.Option("--heads", min=0, metavar="N", help="Print the N best attention heads.")] = 5,
    plot: Plot = None,
    max_length: o.MaxLength = None,
    device: o.Device = None,
    dtype: o.Dtype = None,
    products: o.Products = None,
    revision: o.Revision = None,
    trust_remote_code: o.Trust = False,
    as_json: o.AsJson = False,
) -> int:
    """Measure how well the importance of tokens to an encoder correlates with TF-IDF.

    Importance is measured by perturbed masking (the impact matrix), and by each head's attention of a token to
    itself. The plot shows the impact matrix of the first text.
    """  # fmt: skip
    _check_plot(plot)
    every = _texts(input, pairs, format, field)
    counted = _texts(corpus, None, "txt", None) if corpus is not None else every
    texts = every[:first]
    from ..analysis.impact import impact as measure
    from ..analysis.importance import heads_follow, impact_follows, tfidf_weights
    from ..methods import classical

    encoder = ModelChoice(model, device, dtype, max_length, revision, trust_remote_code, products).load(classical())
    weights = tfidf_weights(encoder, texts, counted)
    if plot is not None:
        from ..analysis.plots import draw_impact

        draw_impact(measure(encoder, texts[0]), plot)
    results = [impact_follows(encoder, texts, weights), *heads_follow(encoder, texts, weights)[:heads]]
    if as_json:
        typer.echo(_json([r.to_json() for r in results]))
        return 0
    typer.echo(f"correlation x 100 with TF-IDF, {results[0].tokens} tokens of {len(texts)} texts")
    typer.echo(f"{'':16} Pearson Spearman")
    for r in results:
        name = r.name if r is results[0] else f"head {r.name}"
        typer.echo(f"{name:16} {100 * r.pearson:7.2f} {100 * r.spearman:8.2f}")
    return 0


def _texts(input: Path | None, pairs: Path | None, format: str | None, field: str | None) -> list[str]:
    """The texts of a file, or of a file of pairs, each once.

    Raises:
        DataError: a row cannot be used.
    """
    from ..errors import BadRow
    from ..tasks.rows import read_rows, text

    if pairs is not None:
        if input is not None:
            raise typer.BadParameter("give --input or --pairs, not both")
        rows = list(read_rows(pairs, {"sentence1": text, "sentence2": text}))
        return [t for t in dict.fromkeys(row[side] for row in rows for side in ("sentence1", "sentence2")) if t.strip()]
    texts = []
    for item in items_of(open_reader(None, input, format, field)):
        if item.problem is not None:
            raise BadRow(input or "stdin", item.line, item.problem)
        texts.append(item.text or "")
    return texts


def _encoders(
    models: Sequence[str],
    given: Mapping[str, Method],
    device: str | None,
    dtype: str | None,
    products: str | None,
    max_length: int | None,
    trust: bool,
    batch_tokens: int | None,
) -> Iterator[tuple[str, Encoder, Limits]]:
    """Each model with each method, one model in memory at a time: its name, encoder and limits."""
    from ..encode.limits import Limits
    from ..encoder import Encoder

    methods: dict[str, Method | None] = {**given} or {"": None}
    for model in models:
        first = next(iter(methods.values()))
        loaded = ModelChoice(model, device, dtype, max_length, None, trust, products).load(first)
        limits = Limits(loaded.max_length, batch_tokens=batch_tokens)
        for spec, method in methods.items():
            encoder = loaded if method in (None, first) else Encoder(loaded.backbone, method, max_length=max_length)
            several = [_short(model)] * (len(models) > 1 or len(methods) == 1) + [spec] * (len(methods) > 1)
            yield " ".join(several), encoder, limits


def _quoted(template: str) -> str:
    """A template as a value in ``--method NAME:template=...``."""
    from ..methods.templates import TEMPLATES

    return template if template == "none" or template in TEMPLATES else json.dumps(template, ensure_ascii=False)


def _short(model: str) -> str:
    return Path(model).name or model


def _check_plot(plot: Path | None) -> None:
    """Refuse a plot that cannot be drawn, before a long computation."""
    if plot is not None:
        from ..analysis.plots import check

        check(plot)


def _json(results: Any) -> str:
    return json.dumps(results, ensure_ascii=False, indent=None if isinstance(results, list) else 2)


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


def _dependencies(results: Sequence[Dependency]) -> Iterator[str]:
    wide = max(len(f.name) for f in results)
    yield f"{'':{wide}}  pivot   mean  quartiles"
    for f in results:
        low, middle, high = f.quartiles
        more = f"  ({f.undefined} sentences of one token left out)" if f.undefined else ""
        yield f"{f.name:{wide}}  {f.pivot:5} {f.mean:6.3f}  {low:.3f} {middle:.3f} {high:.3f}{more}"


def _words(results: Sequence[RepresentativeWords], texts: Sequence[str]) -> Iterator[str]:
    for f in results:
        yield (
            f"{f.name}: {f.share:.2%} of {len(f.words)} texts have a word that is not among the {f.top} most frequent; "
            f"{f.frequent:.2%} have one that is, {f.wordless:.2%} none"
        )
        yield f"  {f.different} different words: " + ", ".join(f"{w} {n}" for w, n in f.commonest)
        yield from (f"  {word or '-':16} {one_line(text)}" for word, text in zip(f.words, texts, strict=False))
