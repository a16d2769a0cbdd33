"""``afterword analyse isotropy``: average cosine, alignment and uniformity of encoders' vectors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from . import options as o
from .analyse_inputs import Models, as_text, short_names, texts_of
from .drawing import check_plot
from .model import ModelChoice, members_of, read_methods

if TYPE_CHECKING:
    from ..encoder import Encoder
    from ..methods import AnyMethod
    from ..papers.isotropy import Isotropy
    from ..post import Post
    from ..tasks.candidates import Candidate


def isotropy(
    model: Models,
    input: o.Input = None,
    pairs: Annotated[
        Path | None,
        typer.Option(
            "--pairs",
            metavar="FILE",
            help="Use the texts in the columns sentence1 and sentence2 of this file, and its pairs with a high score "
            "for alignment.",
        ),
    ] = None,
    above: Annotated[
        float,
        typer.Option(
            "--above", metavar="X", help="Pairs with a score above X are positive, as in SimCSE and Ditto: 4 of 5."
        ),
    ] = 4.0,
    format: o.Format = None,
    field: o.Field = None,
    method: o.Methods = None,
    post: Annotated[
        list[str] | None,
        typer.Option(
            "--post",
            metavar="STEPS",
            help="Post-processing steps to apply to every method's vectors: none, whiten, flow, ... May be given "
            "several times. Default: none.",
        ),
    ] = None,
    fit: Annotated[
        Path | None,
        typer.Option(
            "--fit",
            metavar="FILE",
            help="Fit steps and TF-IDF on the texts of this file. Default: on the texts that are measured.",
        ),
    ] = None,
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
    """Measure how evenly vectors lie in all directions (isotropy), as in Ditto's Table 5 and Figure 4.

    Average cosine and uniformity are those of all texts; alignment is that of the pairs with a high score. Lower is
    better. For every model with each method and each --post; the plot shows alignment over uniformity.
    """  # fmt: skip
    check_plot(plot, dark)
    if plot is not None and pairs is None:
        raise typer.BadParameter("it draws alignment, which needs pairs with scores: give --pairs", param_hint="--plot")
    from ..post import parse_post
    from ..tasks.pairs import read_pairs

    texts = texts_of(input, pairs, format, field)
    methods = dict(zip(method or (), read_methods(method).values(), strict=True))
    posts = {spec: parse_post(spec) for spec in post or ["none"]}
    if fit is not None:
        check_fit(methods, posts)
    on = texts if fit is None else texts_of(fit, None, None, None)
    from ..papers.isotropy import isotropy as measure
    from ..papers.isotropy import positive_pairs
    from ..tasks.vectors import CachedEmbedder

    positives = [] if pairs is None else positive_pairs(read_pairs(pairs, correlated=False), above)
    results: list[tuple[str, Isotropy]] = []
    for spec, short in short_names(model).items():
        encoder = ModelChoice(spec, device, dtype, max_length, revision, trust_remote_code).load(
            next(iter(methods.values()), None)
        )
        for c in fitted(encoder, methods, posts, on, batch_tokens):
            name = " ".join([short] * (len(model) > 1) + [c.name])
            found = measure(CachedEmbedder(c.embedder, c.cache, c.raw, c.post), texts, positives, name=name)
            results.append((short, found))
    if plot is not None:
        from ..papers import figure
        from ..papers.isotropy import plot as plot_points

        of = results[0][1]
        note = f"{of.texts} texts, {of.positives} positive pairs; lower is better on both axes"
        draw = partial(plot_points, results=[r for _, r in results])
        figure.draw(plot, draw, title="Alignment and uniformity", note=note, dark=dark)
    measured = [r for _, r in results]
    typer.echo(as_text([r.to_json() for r in measured]) if as_json else "\n".join(_table(measured)))
    return 0


def check_fit(methods: Mapping[str, AnyMethod], posts: Mapping[str, tuple[Post, ...]]) -> None:
    """Refuse ``--fit`` where nothing is fitted.

    Raises:
        typer.BadParameter: no method and no step is.
    """
    from ..post import Unfitted

    steps = [step for steps in posts.values() for step in steps]
    if all(m.weigh.fitted for m in members_of(methods.values())) and not any(
        isinstance(step, Unfitted) for step in steps
    ):
        raise typer.BadParameter(
            "has no effect: no method (tfidf, sif, remove_biases) and no step (centre, whiten, ...) is fitted to texts",
            param_hint="--fit",
        )


def fitted(
    encoder: Encoder,
    methods: Mapping[str, AnyMethod],
    posts: Mapping[str, tuple[Post, ...]],
    texts: Sequence[str],
    batch_tokens: int | None,
) -> Iterator[Candidate]:
    """Each method with each list of steps, fitted; methods share forwards, and steps share vectors."""
    from ..methods import classical
    from ..tasks.candidates import Fitting, candidates

    own = "classical" if encoder.method == classical() else encoder.method.name
    given = methods or {own: encoder.method}
    for candidate in candidates(encoder, given, posts, {"batch_tokens": batch_tokens}, Fitting.on(texts)):
        yield candidate.fit(texts) if candidate.unfitted else candidate


def _table(results: Sequence[Isotropy]) -> Iterator[str]:
    wide, first = max(len(r.name) for r in results), results[0]
    yield f"{first.texts} texts" + (
        f", {first.positives} positive pair{'s' * (first.positives > 1)}" if first.positives else ""
    )
    yield f"{'':{wide}}  average cosine  uniformity" + ("  alignment" if first.positives else "")
    for r in results:
        aligned = f"{r.alignment:11.3f}" if r.positives else ""
        yield f"{r.name:{wide}}  {r.average_cosine:14.3f}  {r.uniformity:10.3f}{aligned}"
