"""``afterword analyse impact``: how the importance of tokens goes with TF-IDF."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import options as o
from .analyse_inputs import Corpus, Models, PairFile, as_text, check_varies, encoders, texts_of, varies
from .drawing import check_plot, named_plot
from .progress import CountedBar

if TYPE_CHECKING:
    from ..encode.limits import Limits
    from ..encoder import Encoder
    from ..papers.heads import Follows, Measure
    from ..papers.impact import Impact


def impact(
    model: Models,
    input: o.Input = None,
    pairs: PairFile = None,
    format: o.Format = None,
    field: o.Field = None,
    corpus: Corpus = None,
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
    batch_tokens: o.BatchTokens = None,
    device: o.Device = None,
    dtype: o.Dtype = None,
    revision: o.Revision = None,
    trust_remote_code: o.Trust = False,
    as_json: o.AsJson = False,
) -> int:
    """Measure how well the importance of tokens to an encoder correlates with TF-IDF.

    Importance is measured by perturbed masking (the impact matrix), and by each head's attention of a token to
    itself. A correlation is that of the tokens of one text, averaged over texts. The plot shows the impact matrix of
    the first text, a file for each model. --json has the matrices of all texts.
    """  # fmt: skip
    check_plot(plot, dark)
    every = texts_of(input, pairs, format, field)
    counted = every if corpus is None else texts_of(corpus, None, None, None)
    texts = every[:first]
    from ..methods import classical

    results: list[dict[str, Any]] = []
    for name, encoder, limits in encoders(
        model, {"": classical()}, device, dtype, max_length, trust_remote_code, batch_tokens, revision
    ):
        matrices, weights, found = measured(encoder, texts, counted, heads, limits, as_json or plot is not None)
        if not as_json:
            typer.echo("\n".join(_table(name, found, texts)))
        if plot is not None:
            from ..papers import figure
            from ..papers.impact import plot as plot_matrix

            file = plot if len(model) == 1 else named_plot(plot, name)
            note = f"how far masking one token moves another in: {texts[0]}"
            side = 1.5 + 0.26 * min(len(matrices[0].columns), 40)
            size, draw = (max(4.6, side + 1.2), max(3.8, side + 1)), partial(plot_matrix, result=matrices[0])
            figure.draw(file, draw, size=size, title=f"{name}: impact matrix", note=note, dark=dark)
        results += _json(name, found, matrices, weights)
    if as_json:
        typer.echo(as_text(results))
    return 0


def measured(
    encoder: Encoder, texts: Sequence[str], counted: Sequence[str], heads: int, limits: Limits, matrices_too: bool
) -> tuple[list[Impact], list[Measure], list[Follows]]:
    """The impact matrix and the TF-IDF weights of each text, and how the matrices and the best heads follow TF-IDF.

    Raises:
        InputError: no text has a correlation with TF-IDF, and the matrices are not asked for.
    """
    from ..papers.heads import follow, heads_follow, tfidf_weights
    from ..papers.impact import impact as matrix_of

    weights = tfidf_weights(encoder, texts, counted)
    if not matrices_too:
        check_varies(weights)
    by_head = heads_follow(encoder, texts, weights, limits=limits)[:heads] if heads and varies(weights) else ()
    matrices = []
    with CountedBar("impact matrices", "texts", len(texts)) as bar:
        for text in texts:
            matrices.append(matrix_of(encoder, text, limits=limits))
            bar.update()
    return matrices, weights, [*follow(["impact matrix"], [m.columns[None] for m in matrices], weights), *by_head]


def _table(name: str, found: Sequence[Follows], texts: Sequence[str]) -> Iterator[str]:
    whole = found[0]
    title = f"{name}: " if name else ""
    if not whole.texts:
        yield f"{title}no correlation with TF-IDF: {why_undefined(whole.undefined, len(texts))}"
        return
    mean = f"mean over {whole.texts} text{'s' * (whole.texts > 1)} of {whole.tokens} tokens"
    yield f"{title}correlation x 100 with TF-IDF within a text, {mean}"
    yield f"{'':16} Pearson Spearman"
    for f in found:
        measure = f.name if f is whole else f"head {f.name}"
        yield f"{measure:16} {100 * f.pearson:7.2f} {100 * f.spearman:8.2f}"
    if whole.undefined:
        yield why_undefined(whole.undefined, len(texts))


def why_undefined(left_out: int, texts: int) -> str:
    """Why texts have no correlation with TF-IDF."""
    return (
        f"{left_out} of {texts} texts left out: all their tokens have one TF-IDF or one importance; one text, without "
        "--corpus, is always such a text"
    )


def _json(
    name: str, found: Sequence[Follows], matrices: Sequence[Impact], weights: Sequence[Measure]
) -> Iterator[dict[str, Any]]:
    texts = [{**m.to_json(), "tfidf": w.tolist()} for m, w in zip(matrices, weights, strict=True)]
    for i, f in enumerate(found):
        yield {"model": name, **f.to_json(), **({"texts_measured": texts} if i == 0 else {})}
