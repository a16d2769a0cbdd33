"""``afterword analyse words``: the word that the language-modelling head predicts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from . import options as o
from .analyse_inputs import Models, PairFile, as_text, encoders, texts_of
from .model import read_methods
from .page import one_line

if TYPE_CHECKING:
    from ..papers.words import RepresentativeWords


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
    trust_remote_code: o.Trust = False,
    as_json: o.AsJson = False,
) -> int:
    """Print the word that the language-modelling head predicts after the last token of each text.

    Also print how often that word is not a high-frequency word (BeLLM's representative words).
    """  # fmt: skip
    from ..papers.words import read_counts

    texts, counts, results = texts_of(input, pairs, format, field), read_counts(frequencies), []
    methods = read_methods(method or ["bellm"])
    from ..papers.words import representative_words

    for name, encoder, limits in encoders(model, methods, device, dtype, max_length, trust_remote_code, batch_tokens):
        results.append(representative_words(encoder, texts, counts, top=top, head=head, name=name, limits=limits))
    typer.echo(as_text([r.to_json() for r in results]) if as_json else "\n".join(_words(results, texts[:show])))
    return 0


def _words(results: Sequence[RepresentativeWords], texts: Sequence[str]) -> Iterator[str]:
    for f in results:
        yield (
            f"{f.name}: {f.share:.2%} of {len(f.words)} texts have a word that is not among the {f.top} most frequent; "
            f"{f.frequent:.2%} have one that is, {f.wordless:.2%} none"
        )
        yield f"  {f.different} different words: " + ", ".join(f"{w} {n}" for w, n in f.commonest)
        yield from (f"  {word or '-':16} {one_line(text)}" for word, text in zip(f.words, texts, strict=False))
