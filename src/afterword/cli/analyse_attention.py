"""``afterword analyse attention``: attention matrices of one text, and how far attention looks forward."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import options as o
from .analyse_inputs import as_text, encoders
from .drawing import check_plot
from .inputs import open_reader
from .model import ModelChoice, read_methods
from .page import BOLD, Column, one_line, page_width, styled, table

if TYPE_CHECKING:
    from ..encoder import Encoder
    from ..papers.attention import AttentionMatrix, ForwardAttention


def attention(
    model: o.Model,
    text: Annotated[str | None, typer.Argument(metavar="TEXT", help="The text. Default: --input or stdin.")] = None,
    input: o.Input = None,
    row: Annotated[
        int | None,
        typer.Option("--row", min=1, metavar="N", help="Use text N of the input, counted from 1."),
    ] = None,
    format: o.Format = None,
    field: o.Field = None,
    method: o.Methods = None,
    head: Annotated[
        list[str] | None,
        typer.Option(
            "--head",
            metavar="LAYER-HEAD",
            help="Show this head's attention, as in 1-10: layer and head, counted from 1. May be given several times.",
        ),
    ] = None,
    layer: Annotated[
        list[int] | None,
        typer.Option(
            "--layer",
            min=1,
            metavar="N",
            help="Show the mean over all heads of layer N, counted from 1. May be given several times.",
        ),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option("--token", metavar="WORD", help="Show only the rows of this word: what its tokens attend to."),
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
    """Show the attention of one text, token by token.

    By default it is the matrix that the method reads: ReBA's backward attention, with the layer and head that won
    each maximum, or Ditto's head. For a method with bidirectional layers, and for several texts, the share of each
    layer's attention that goes to later tokens is printed.
    """  # fmt: skip
    from ..methods import classical, one_method, parse_head

    check_plot(plot, dark)
    heads, methods = [parse_head(h) for h in head or ()], read_methods(method)
    texts = _texts(text, input, row, format, field)
    if (heads or layer) and not methods and _is_plain(model):
        methods = {"": classical()}  # what is used without a method: it need not be named to see a head
    if len(texts) != 1 and (heads or layer or token is not None or plot is not None):
        raise typer.BadParameter(f"there are {len(texts)} texts, and a matrix is that of one", param_hint="--row")
    from ..papers.attention import forward_attention, rows_of_word

    seen = []
    for name, encoder, limits in encoders([model], methods, device, dtype, max_length, trust_remote_code, batch_tokens):
        views = _views(encoder, texts[0], heads, layer or ()) if len(texts) == 1 else []
        forward = None
        if one_method(encoder.method, "attention").sight.both_ways or len(texts) > 1:
            forward = forward_attention(encoder, texts, name=name, limits=limits)
        elif not views:
            raise typer.BadParameter(
                f"{encoder.method.name} reads no attention: give --head or --layer, or a method that does, as reba",
                param_hint="--method",
            )
        rows = None if token is None else rows_of_word(encoder, texts[0], token)
        seen.append(Seen(name, tuple(views), forward, rows))
    if plot is not None:
        views = [view for one in seen for view in one.views]
        if not views:
            raise typer.BadParameter("there is no matrix to draw: give --head or --layer", param_hint="--plot")
        draw_attention(seen, texts[0], plot, dark)
    typer.echo(as_text([one.to_json() for one in seen]) if as_json else "\n".join(_lines(seen, len(texts))))
    return 0


def draw_attention(seen: Sequence[Seen], text: str, path: Path, dark: bool) -> None:
    """Draw all matrices, up to three next to each other, with one scale."""
    from ..papers import figure
    from ..papers.attention import plot

    views = [replace(view, name=f"{one.name}: {view.name}") for one in seen for view in one.views]
    across = min(3, len(views))
    down, side = -(-len(views) // across), max(2.6, 0.8 + 0.24 * len(views[0].tokens))
    note = f"“{text}”; shades go by the square root of the weight"
    size = (across * (side + 1.2), down * (side + 1) + 0.6)
    figure.draw(
        path, partial(plot, views=views), size=size, title="Attention", note=note, panels=(down, across), dark=dark
    )


@dataclass(frozen=True)
class Seen:
    """What is shown of one method: its matrices, its share of forward attention, and the rows that are asked for."""

    name: str
    views: tuple[AttentionMatrix, ...]
    forward: ForwardAttention | None
    rows: Sequence[int] | None

    def to_json(self) -> dict[str, Any]:
        """All of it as plain data."""
        forward = None if self.forward is None else self.forward.to_json()
        return {"name": self.name, "matrices": [v.to_json() for v in self.views], "rows": self.rows, "forward": forward}


def _is_plain(model: str) -> bool:
    """Whether a model has no method of its own."""
    folder, _ = ModelChoice(model).located().folder()
    return not (folder / "modules.json").exists()


def _texts(text: str | None, input: Path | None, row: int | None, format: str | None, field: str | None) -> list[str]:
    from ..errors import BadRow, DataError
    from ..jobs.items import items_of

    texts = []
    with closing(open_reader(None if text is None else [text], input, format, field)) as reader:
        for item in items_of(reader):
            if item.problem is not None:
                raise BadRow(input or ("the text" if text is not None else "stdin"), item.line, item.problem)
            texts.append(item.text or "")
    if not texts:
        raise DataError(f"{input or 'stdin'} holds no text: give TEXT, or a file with --input")
    if row is not None and row > len(texts):
        raise typer.BadParameter(f"{row}: the input has {len(texts)} texts, counted from 1", param_hint="--row")
    return texts if row is None else [texts[row - 1]]


def _views(
    encoder: Encoder, text: str, heads: Sequence[tuple[int, int]], layers: Sequence[int]
) -> list[AttentionMatrix]:
    from ..methods import one_method
    from ..methods.weights import Backward
    from ..papers.attention import attention_heads, own_attention

    asked = attention_heads(encoder, text, heads, [n - 1 for n in layers]) if heads or layers else []
    if asked and not isinstance(one_method(encoder.method, "attention").weigh, Backward):
        return asked
    own = own_attention(encoder, text)
    return asked if own is None else [*asked, own]


def _lines(seen: Sequence[Seen], texts: int) -> Iterator[str]:
    for i, one in enumerate(seen):
        for j, view in enumerate(one.views):
            yield from [""] * bool(i or j)
            yield styled(one_line(f"{one.name}: {view.name}"), BOLD, sys.stdout)
            yield from _grid(view) if one.rows is None else _columns(view, one.rows)
    yield from _forward([one.forward for one in seen if one.forward is not None], texts)


def _grid(view: AttentionMatrix) -> list[str]:
    """All numbers of a matrix, times 100; a dot is 0. Columns are numbered as the tokens."""
    numbers = [str(i + 1) for i in range(len(view.tokens))]
    weights = [] if view.weights is None else [Column([f"{100 * w:.0f}" for w in view.weights], "score", "weight")]
    scores = [
        Column([f"{100 * value:.0f}" if value else "." for value in column], "score", number)
        for number, column in zip(numbers, view.matrix.T, strict=True)
    ]
    return ["x 100", *table([Column(numbers, "label"), Column(view.tokens, "label"), *weights, *scores], page_width())]


def _columns(view: AttentionMatrix, rows: Sequence[int]) -> list[str]:
    """What some tokens attend to, one token a line; behind it the head that won the maximum."""
    columns = [Column(view.tokens, "label")]
    for r in rows:
        columns.append(Column([f"{value:.3f}" for value in view.matrix[r]], "score", one_line(view.tokens[r])))
        if view.layer is not None and view.head is not None:
            won = [f"{a}-{b}" if a else "-" for a, b in zip(view.layer[r], view.head[r], strict=True)]
            columns.append(Column(won, "score", "won by"))
    return table(columns, page_width())


def _forward(found: Sequence[ForwardAttention], texts: int) -> Iterator[str]:
    """The share of forward attention by layer; layers with bidirectional attention by the method are marked."""
    if not found:
        return
    plural = "" if texts == 1 else "s"
    yield f"share of attention that goes to later tokens, {texts} text{plural}; * is bidirectional by the method"
    layers = range(len(found[0].layers))
    scores = [
        Column(
            [f"{100 * f.layers[i]:.1f} %" + (" *" if i + 1 in f.both_ways else "  ") for f in found],
            "score",
            str(i + 1),
        )
        for i in layers
    ]
    even = Column([f"{100 * f.even:.1f} %" for f in found], "score", "if even")
    yield from table([Column([f.name for f in found], "text", "layer"), *scores, even], page_width())
