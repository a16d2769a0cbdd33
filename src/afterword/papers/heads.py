"""Do a model's own measures of token importance correlate with TF-IDF? The impact matrix, and diagonal attention.

Source: Ditto, Table 3 (impact matrix) and Table 4 (heads). The paper does not say whether it correlates the tokens of
each text, or those of all texts together. Here, as in `afterword.tune.label_free`: the tokens of each text, and the
mean over texts. Ditto weighs the tokens of one text against each other; differences between texts do not matter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from ..backbone.attention_taps import Diagonals
from ..backbone.facts import LAST
from ..encode.limits import Limits, each
from ..encoder import Encoder
from ..errors import InputError
from ..methods.frequency import TfIdf, count, tf_idf
from ..tasks.scores import ranks
from ..text.batch import Batch
from ..text.layout import Layout
from .figure import text_on
from .impact import impact
from .measurement import Measurement

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Measure = NDArray[np.floating]
"""A number for each content token of a text (N,), or several of them (M, N)."""


@dataclass(frozen=True)
class Follows(Measurement):
    """The correlation of a measure of token importance with TF-IDF: within each text, averaged over texts.

    Attributes:
        name: name of the measure; a head as "1-10", layer and head from 1.
        pearson, spearman: means over texts of the correlation over a text's tokens; NaN if no text has one.
        tokens: number of tokens of all texts.
        texts: number of texts in the mean.
        undefined: number of texts left out, in which the measure or TF-IDF is the same for all tokens.
    """

    name: str
    pearson: float
    spearman: float
    tokens: int
    texts: int
    undefined: int


def tfidf_weights(encoder: Encoder, texts: Sequence[str], corpus: Sequence[str]) -> list[Measure]:
    """TF-IDF of each content token: how often it occurs in its text times its idf in the corpus (`TfIdf`)."""
    tokenizer = encoder.backbone.tokenizer
    inverse = TfIdf().weigh(count(corpus, tokenizer, encoder.backbone.vocabulary_size), tokenizer).double()
    return [tf_idf(torch.tensor([ids], dtype=torch.long), inverse)[0].numpy() for ids in tokenizer.ids(texts)]


def impact_follows(encoder: Encoder, texts: Sequence[str], weights: Sequence[Measure]) -> Follows:
    """Correlate the column means of the impact matrix with TF-IDF weights (Table 3).

    Args:
        encoder: see `impact`.
        texts: sentences; each needs N (N + 1) / 2 masked copies.
        weights: weights per text (N,), from `tfidf_weights`.
    """
    return follow(["impact matrix"], [impact(encoder, text).columns[None] for text in texts], weights)[0]


def heads_follow(
    encoder: Encoder, texts: Sequence[str], weights: Sequence[Measure], *, limits: Limits | None = None
) -> tuple[Follows, ...]:
    """Correlate every head's diagonal attention with TF-IDF weights (Table 4), sorted by Pearson's correlation.

    Args:
        encoder: an encoder whose model's attention can be read; its method is not used.
        texts: sentences.
        weights: weights per text (N,).
        limits: batch size.

    Raises:
        AttentionNotSeen: the model's attention weights cannot be read.
        InputError: a text is longer than the model allows.
    """
    backbone = encoder.backbone
    backbone.require(True, None)
    writings = Layout().write(texts, backbone.tokenizer, encoder.max_length)
    if cut := [i for i, w in enumerate(writings) if w.kept < w.total]:
        raise InputError(f"text {cut[0]} is over max_length={encoder.max_length}: leave it out")
    diagonals: dict[int, Measure] = {}

    def run(batch: Batch, indices: list[int]) -> dict[int, Measure]:
        tap, of_batch = Diagonals(), {}
        backbone.forward(batch, frozenset({LAST}), taps=[tap])
        for g, group in enumerate(batch.groups):
            spans = group.spans[:, 0].tolist()
            for t, one, (start, end) in zip(group.text.tolist(), tap.result(g), spans, strict=True):
                of_batch[indices[t]] = one[..., start:end].double().cpu().numpy()
        return of_batch

    for _, of_batch in each(writings, run, (limits or Limits()).budget(backbone.device), backbone.device):
        diagonals.update(of_batch)
    layers, heads = backbone.facts.layers, backbone.facts.heads
    names = [f"{layer + 1}-{head + 1}" for layer in range(layers) for head in range(heads)]
    results = follow(names, [diagonals[i].reshape(len(names), len(weights[i])) for i in range(len(texts))], weights)
    return tuple(sorted(results, key=lambda f: math.inf if math.isnan(f.pearson) else -f.pearson))


def follow(names: Sequence[str], measured: Sequence[Measure], weights: Sequence[Measure]) -> tuple[Follows, ...]:
    """Correlate measures of token importance with weights, within each text, and average over texts.

    Args:
        names: names of M measures.
        measured: per text, the measures of its tokens (M, N).
        weights: per text, the weights of its tokens (N,).

    >>> follow(["a"], [np.array([[1.0, 2, 4]]), np.array([[1.0]])], [np.array([0.0, 1, 3]), np.array([2.0])])[0].texts
    1
    """
    of_texts = np.array([_within(m, w) for m, w in zip(measured, weights, strict=True)])  # (texts, 2, M)
    defined = np.isfinite(of_texts[:, 0]).sum(0)
    total, tokens = np.nansum(of_texts, 0), sum(len(w) for w in weights)
    pearsons, spearmans = np.divide(total, defined, out=np.full_like(total, np.nan), where=defined > 0)
    return tuple(
        Follows(name, float(p), float(s), tokens, int(n), len(weights) - int(n))
        for name, p, s, n in zip(names, pearsons, spearmans, defined, strict=True)
    )


def _within(measured: Measure, weights: Measure) -> tuple[Measure, Measure]:
    """Pearson's and Spearman's correlation of each measure (M, N) with one text's weights (N,); NaN if constant."""
    if len(weights) < 2:
        return np.full(len(measured), np.nan), np.full(len(measured), np.nan)
    return _pearsons(measured, weights), _pearsons(ranks(measured), ranks(weights))


def _pearsons(a: Measure, b: Measure) -> Measure:
    constant = (np.ptp(a, -1) == 0) | (np.ptp(b) == 0)
    x, y = a - a.mean(-1, keepdims=True), b - b.mean()
    lengths = np.linalg.norm(x, axis=-1) * np.linalg.norm(y)
    return np.where(constant, np.nan, (x @ y) / np.where(constant, 1, lengths))


def plot(
    axes: Axes,
    table: Measure,
    label: str,
    *,
    best: tuple[int, int] | None = None,
    chosen: tuple[int, int] | None = None,
) -> None:
    """Draw a heat map with a number per head: a row per layer and a column per head, both counted from 1.

    The scale begins at the 5th percentile, so that one bad head does not take all the shades.

    Args:
        axes: the axes to draw on.
        table: scores of heads (L, H), drawn times 100; NaN where a head has none.
        label: what the numbers are, next to the scale.
        best: a head that gets a solid frame, as (layer, head) from 0.
        chosen: a head that gets a dashed frame.
    """
    layers, heads = table.shape
    scores = 100 * table
    low = float(np.nanpercentile(scores, 5, method="lower")) if np.isfinite(scores).any() else 0.0
    image = axes.imshow(np.ma.masked_invalid(scores), vmin=low, aspect="auto")
    for (layer, head), score in np.ndenumerate(scores):
        colour, number = (None, "-") if np.isnan(score) else (text_on(image.to_rgba(np.asarray(score))), f"{score:.0f}")
        axes.text(head, layer, number, ha="center", va="center", fontsize=7.5, color=colour)
    for framed, dash in ((best, "-"), (chosen, "--")):
        if framed is not None:
            layer, head = framed
            x, y = np.array([-0.5, 0.5, 0.5, -0.5, -0.5]) + head, np.array([-0.5, -0.5, 0.5, 0.5, -0.5]) + layer
            axes.plot(x, y, color="white", marker="", linestyle="-", linewidth=3.4, clip_on=False)
            axes.plot(x, y, color="black", marker="", linestyle=dash, linewidth=1.8, clip_on=False)
    axes.set_xticks(range(heads), [str(h + 1) for h in range(heads)])
    axes.set_yticks(range(layers), [str(k + 1) for k in range(layers)])
    axes.grid(visible=False)
    axes.set(xlabel="head", ylabel="layer", xlim=(-0.5, heads - 0.5), ylim=(layers - 0.5, -0.5))
    axes.get_figure(root=True).colorbar(image, ax=axes, label=label, pad=0.02)  # type: ignore[union-attr]
