"""``afterword analyse impact``: how the importance of tokens goes with TF-IDF."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from . import options as o
from .analyse_inputs import PairFile, as_text, texts_of
from .drawing import check_plot, draw_plot
from .model import ModelChoice


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
    plot: o.Plot = None,
    dark: o.Dark = False,
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
    check_plot(plot, dark)
    every = texts_of(input, pairs, format, field)
    counted = texts_of(corpus, None, "txt", None) if corpus is not None else every
    texts = every[:first]
    from ..analysis.impact import impact as measure
    from ..analysis.importance import heads_follow, impact_follows, tfidf_weights
    from ..methods import classical

    encoder = ModelChoice(model, device, dtype, max_length, revision, trust_remote_code, products).load(classical())
    weights = tfidf_weights(encoder, texts, counted)
    if plot is not None:
        from ..plots.impact import draw_impact

        draw_plot(plot, dark, partial(draw_impact, measure(encoder, texts[0])))
    results = [impact_follows(encoder, texts, weights), *heads_follow(encoder, texts, weights)[:heads]]
    if as_json:
        typer.echo(as_text([r.to_json() for r in results]))
        return 0
    typer.echo(f"correlation x 100 with TF-IDF, {results[0].tokens} tokens of {len(texts)} texts")
    typer.echo(f"{'':16} Pearson Spearman")
    for r in results:
        name = r.name if r is results[0] else f"head {r.name}"
        typer.echo(f"{name:16} {100 * r.pearson:7.2f} {100 * r.spearman:8.2f}")
    return 0
