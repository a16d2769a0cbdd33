"""The attention of one text as matrices: of a head, of a layer, and ReBA's; and how far attention looks forward.

Source: Ditto, Figure 2 (heads 1-10 and 11-11 of BERT); ReBA, Figures 1 and 2 and Algorithm 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..backbone.attention_taps import Tap
from ..backbone.attention_views import AttentionView
from ..backbone.facts import LAST
from ..encode.limits import Limits
from ..encoder import Encoder
from ..errors import InputError, MethodError, NoSuchHead
from ..methods import Method, one_method
from ..methods.weights import Backward, SelfAttention
from ..text.batch import lay
from ..text.inputs import check_texts, is_blank
from ..text.layout import Text
from ..text.segments import TokenizedText
from ..text.words import span_of, tokens_of
from .figure import printable, text_on
from .measurement import Measurement, sweep

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage

Matrix = NDArray[np.float64]

WRITTEN = 18  # with at most this many tokens, each cell names the head that won the maximum


@dataclass(frozen=True)
class AttentionMatrix(Measurement):
    """One attention matrix of a text.

    Attributes:
        name: what the matrix is: "head 1-10", "layer 6, mean of 12 heads", "backward attention".
        tokens: the n tokens that the model reads, as letters; template, copies and special tokens included.
        matrix: how much token i attends to token k (n, n). For backward attention A_new[i, k] of ReBA's Algorithm 1,
            the maximum over layers and heads of (A + A^T) / 2, where triangle="upper" leaves only k >= i.
        weights: the weight of each token in the text's vector (n,); None where the method does not take its weights
            from this matrix.
        layer, head: for backward attention, the layer and the head that won the maximum, counted from 1 (n, n), and
            0 where the matrix is 0; None for another matrix.
    """

    name: str
    tokens: tuple[str, ...]
    matrix: Matrix
    weights: Matrix | None = None
    layer: NDArray[np.int64] | None = None
    head: NDArray[np.int64] | None = None


@dataclass(frozen=True)
class ForwardAttention(Measurement):
    """How much of each layer's attention goes to later tokens, as a mean over heads, tokens and texts.

    Attributes:
        name: name of the encoder.
        layers: share of each layer, between 0 and 1 (L,); 0 in a causal layer.
        both_ways: the layers, counted from 1, to which the method gives bidirectional attention.
        even: the share if every token attended to all n tokens alike, (n - 1) / 2n.
        per_text: share of each text and layer (T, L).
    """

    name: str
    layers: Matrix
    both_ways: tuple[int, ...]
    even: float
    per_text: Matrix

    def to_json(self) -> dict[str, object]:
        """The fields but the shares of single texts."""
        return {name: value for name, value in super().to_json().items() if name != "per_text"}


def attention_heads(
    encoder: Encoder, text: Text, heads: Sequence[tuple[int, int]] = (), layers: Sequence[int] = ()
) -> list[AttentionMatrix]:
    """The attention matrices of heads, and the means over the heads of layers, from one forward.

    Args:
        encoder: its method gives the input format and the bidirectional layers.
        text: one string, or one list of token ids.
        heads: (layer, head), both from 0; `afterword.methods.parse_head` reads "1-10".
        layers: from 0.

    Raises:
        NoSuchHead: the model has no such head or layer.
        AttentionNotSeen: the model's attention cannot be read.
        InputError: the text is blank, one token, or longer than the model's limit.
        MethodError: the method cuts texts into chunks, or sums two streams.
    """
    facts, writing = encoder.backbone.facts, _written(encoder, text)
    for layer, head in heads:
        SelfAttention(layer=layer, head=head).check(facts.layers, facts.heads, 0)
    for layer in layers:
        if not 0 <= layer < facts.layers:
            raise NoSuchHead(f"layer {layer + 1} does not exist: the model has layers 1 to {facts.layers}")
    tap = _Heads([(layer, head) for layer, head in heads] + [(layer, None) for layer in layers])
    _run(encoder, writing, tap)
    names = [f"head {layer + 1}-{head + 1}" for layer, head in heads]
    names += [f"layer {layer + 1}, mean of {facts.heads} heads" for layer in layers]
    tokens, weigh = _tokens(encoder, writing), _method(encoder).weigh
    own = (weigh.layer, weigh.head) if isinstance(weigh, SelfAttention) else None
    return [
        AttentionMatrix(
            name, tokens, tap.read_matrix(key), encoder.weights(text)[1].astype(np.float64) if key == own else None
        )
        for name, key in zip(names, tap.wanted, strict=True)
    ]


def backward_attention(encoder: Encoder, text: Text) -> AttentionMatrix:
    """ReBA's matrix of a text, the weights that it gives to the tokens, and the head that won each maximum.

    Matrix and weights are those of `Encoder.attention` and `Encoder.weights`.

    Args:
        encoder: an encoder by `reba`.
        text: one string, or one list of token ids.

    Raises:
        MethodError: the method is not `reba`, or cuts texts into chunks.
        AttentionNotSeen, InputError: as for `attention_heads`.
    """
    weigh = _method(encoder).weigh
    if not isinstance(weigh, Backward):
        raise MethodError(f"{_method(encoder).name} has no backward attention: use reba")
    writing = _written(encoder, text)
    facts = encoder.backbone.facts
    tap = _Winner(facts.layers - 1 if weigh.attention == "last_layer" else None)
    _run(encoder, writing, tap)
    won, matrix = tap.result(0)[0].cpu().numpy(), encoder.attention(text)[1].astype(np.float64)
    return AttentionMatrix(
        "backward attention",
        _tokens(encoder, writing),
        matrix,
        encoder.weights(text)[1].astype(np.float64),
        np.where(matrix > 0, won // facts.heads + 1, 0),
        np.where(matrix > 0, won % facts.heads + 1, 0),
    )


def own_attention(encoder: Encoder, text: Text) -> AttentionMatrix | None:
    """The matrix that the encoder's method itself reads: ReBA's, or that of Ditto's head; None for another method.

    Errors are those of `attention_heads`.
    """
    weigh = _method(encoder).weigh
    if isinstance(weigh, SelfAttention):
        return attention_heads(encoder, text, [(weigh.layer, weigh.head)])[0]
    return backward_attention(encoder, text) if isinstance(weigh, Backward) else None


def forward_attention(
    encoder: Encoder, texts: Sequence[str], *, name: str | None = None, limits: Limits | None = None
) -> ForwardAttention:
    """Measure how much of each layer's attention looks forward, by the encoder's method.

    Args:
        encoder: its method gives the input format and the bidirectional layers.
        texts: texts that are not blank.
        name: name of the result; None = the method's name.
        limits: batch size and maximum length.

    Raises:
        AttentionNotSeen: the model's attention cannot be read.
        InputError: there is no text, or a text is blank.
        MethodError: as for `attention_heads`.
    """
    _check_method(encoder)
    method = _method(encoder)
    rows = sweep(encoder, texts, lambda states, shares: [(one, states.shape[1]) for one in shares], limits, _Forward)
    shares = torch.stack([one for one, _ in rows]).cpu().numpy()
    even = float(np.mean([(n - 1) / (2 * n) for _, n in rows]))
    both = method.sight.resolve(encoder.backbone.facts.layers) if method.sight else frozenset()
    return ForwardAttention(
        name or method.name, shares.mean(0), tuple(sorted(layer + 1 for layer in both)), even, shares
    )


def rows_of_word(encoder: Encoder, text: str, word: str) -> list[int]:
    """The indices, among the tokens that the model reads, of those of a word in the first copy of the text.

    Args:
        encoder: its method gives the input format.
        text: the text.
        word: every occurrence of it counts.

    Raises:
        WordNotFound: the text does not contain it, or was cut before it.
    """
    (writing,) = _method(encoder).layout.write([text], encoder.backbone.tokenizer, encoder.max_length, offsets=True)
    span_of(word, text)
    start, rows = writing.segments[0].copies[0][0], set[int]()
    for i in range(text.count(word)):
        rows.update(tokens_of(span_of((word, i), text), writing, 1, f"the word {word!r}"))
    return [start + row for row in sorted(rows)]


def plot(*panels: Axes, views: Sequence[AttentionMatrix]) -> None:
    """Draw matrices with one scale: rows are tokens, columns the tokens that they attend to, darker is more weight.

    In backward attention a row's token takes in the tokens of the columns. Heads as in Figure 2 of Ditto; ReBA's
    matrix, with the weights of the tokens above it, as in its Figures 1 and 2.

    Args:
        panels: the axes to draw on, one per matrix or more.
        views: the matrices.
    """
    most = max(float(view.matrix.max()) for view in views)
    for axes in panels[len(views) :]:
        axes.set_axis_off()
    for axes, view in zip(panels, views, strict=False):
        image = _plot(axes, view, most)
    figure = panels[0].get_figure(root=True)
    figure.colorbar(image, ax=list(panels), label="attention weight", shrink=0.6)  # type: ignore[union-attr]


def _plot(axes: Axes, view: AttentionMatrix, most: float) -> AxesImage:
    """Draw one matrix; shades go by the square root of the weight, the darkest is `most`."""
    from matplotlib.colors import PowerNorm

    image = axes.imshow(view.matrix, norm=PowerNorm(0.5, 0, most))
    tokens = [printable(token, 16) for token in view.tokens]
    axes.set_xticks(range(len(tokens)), tokens, rotation=90, fontsize=8)
    axes.set_yticks(range(len(tokens)), tokens, fontsize=8)
    axes.grid(visible=False)
    axes.set(xlabel="attends to" if view.layer is None else "takes in", ylabel="token")
    if view.layer is not None and view.head is not None and len(tokens) <= WRITTEN:
        for i, k in np.argwhere(view.layer):
            colour, won = text_on(image.to_rgba(view.matrix[i, k])), f"{view.layer[i, k]}-{view.head[i, k]}"
            axes.text(k, i, won, ha="center", va="center", fontsize=5.5, color=colour)
    if view.weights is not None:
        bars = axes.inset_axes((0, 1.03, 1, 0.12), sharex=axes)
        bars.bar(range(len(tokens)), view.weights)
        bars.tick_params(labelbottom=False, labelsize=7)
        bars.set_ylabel("weight", fontsize=7)
        bars.set_title(printable(view.name, 80))
    else:
        axes.set_title(printable(view.name, 80))
    return image


def _method(encoder: Encoder) -> Method:
    """The encoder's method, which must be a single one."""
    return one_method(encoder.method, "attention")


def _check_method(encoder: Encoder) -> None:
    """Whether one forward holds the attention of a text, and it can be read."""
    method = _method(encoder)
    if method.layout.chunk is not None:
        raise MethodError(f"{method.name} cuts texts into chunks, which have no one matrix: leave chunk out")
    if method.sight is not None and method.sight.couple != "replace":
        raise MethodError(
            f"couple={method.sight.couple!r} runs a second stream, whose attention is not read: use couple='replace'"
        )
    encoder.backbone.require(True, method.sight)


def _written(encoder: Encoder, text: Text) -> TokenizedText:
    """One text as the model reads it, not truncated."""
    _check_method(encoder)
    (checked,) = check_texts([text])
    if is_blank(checked):
        raise InputError("the text is blank: give one with a word")
    (writing,) = _method(encoder).layout.write([checked], encoder.backbone.tokenizer, encoder.max_length)
    if writing.kept < writing.total:
        raise InputError(
            f"the text has {writing.total} tokens, and {writing.kept} of them fit into "
            f"max_length={encoder.max_length}: give a shorter text"
        )
    if writing.size < 2:
        raise InputError(f"{text!r:.40} is one token for the model, which attends to itself alone: give a longer text")
    return writing


def _tokens(encoder: Encoder, writing: TokenizedText) -> tuple[str, ...]:
    return tuple(encoder.backbone.tokenizer.letters(writing.segments[0].ids))


def _run(encoder: Encoder, writing: TokenizedText, tap: Tap) -> None:
    backbone = encoder.backbone
    with torch.no_grad():
        backbone.forward(lay([writing], backbone.device), frozenset({LAST}), _method(encoder).sight, [tap])


def _by_head(view: AttentionView) -> Iterator[tuple[int, Tensor]]:
    """Each head's number and matrix (G, n, n), one at a time, in float64."""
    for head in range(view.heads):
        yield head, view.whole(slice(head, head + 1))[:, 0].double()


class _Heads(Tap):
    """The matrices of some heads, and of the means over all heads of some layers, of one text: (1, M, n, n).

    Args:
        wanted: (layer, head) from 0; None as the head is the mean.
    """

    def __init__(self, wanted: Sequence[tuple[int, int | None]]) -> None:
        self.wanted = list(dict.fromkeys(wanted))
        self._read: dict[tuple[int, int | None], Tensor] = {}

    def wants(self, layer: int) -> bool:
        return any(layer == wanted for wanted, _ in self.wanted)

    def read(self, view: AttentionView) -> None:
        for layer, head in self.wanted:
            if layer == view.layer:
                heads = slice(0, view.heads) if head is None else slice(head, head + 1)
                self._read[layer, head] = view.whole(heads).double().mean(1)

    def result(self, group: int) -> Tensor:
        return torch.stack([self._read[key] for key in self.wanted], 1)

    def read_matrix(self, key: tuple[int, int | None]) -> Matrix:
        """One of the matrices (n, n)."""
        return np.asarray(self._read[key][0].cpu().numpy())


class _Winner(Tap):
    """Which head has the maximum of (A + A^T) / 2, as layer * H + head from 0; the first of equal ones: (G, n, n).

    Args:
        layer: read this layer only; None = all.
    """

    def __init__(self, layer: int | None) -> None:
        self.layer = layer
        self._best: dict[int, Tensor] = {}
        self._won: dict[int, Tensor] = {}

    def wants(self, layer: int) -> bool:
        return self.layer in (None, layer)

    def read(self, view: AttentionView) -> None:
        for head, a in _by_head(view):
            a = (a + a.mT) / 2
            best = self._best.setdefault(view.group, torch.full_like(a, -1.0))
            won = self._won.setdefault(view.group, torch.zeros_like(a, dtype=torch.long))
            won.masked_fill_(a > best, view.layer * view.heads + head)
            torch.maximum(best, a, out=best)

    def result(self, group: int) -> Tensor:
        return self._won[group]


class _Forward(Tap):
    """The share of attention that goes to later tokens, a mean over heads and tokens: (G, L)."""

    def __init__(self) -> None:
        self._read: dict[int, list[Tensor]] = {}

    def wants(self, layer: int) -> bool:
        return True

    def read(self, view: AttentionView) -> None:
        if view.causal:
            share = torch.zeros(len(view.diagonal()), dtype=torch.float64)
        else:
            shares = [a.triu(1).sum(-1).mean(-1) for _, a in _by_head(view)]
            share = torch.stack(shares).mean(0).cpu()
        self._read.setdefault(view.group, []).append(share)

    def result(self, group: int) -> Tensor:
        return torch.stack(self._read[group], 1)
