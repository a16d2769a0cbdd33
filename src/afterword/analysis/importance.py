"""Do a model's own measures of token importance correlate with TF-IDF? The impact matrix, and diagonal attention.

Source: Ditto, Table 3 (impact matrix) and Table 4 (heads).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from ..backbone.attention_taps import Diagonals
from ..backbone.facts import LAST
from ..encode.batches import each
from ..encode.limits import Limits
from ..encoder import Encoder
from ..errors import InputError
from ..methods.frequency import TfIdf, count, tf_idf
from ..tasks.scores import pearson, spearman
from ..text.batch import Batch
from ..text.layout import Layout
from .impact import impact
from .result import Measurement

Measure = NDArray[np.floating]
"""A number for each content token of a text (N,)."""


@dataclass(frozen=True)
class Follows(Measurement):
    """The correlation of a measure of token importance with TF-IDF.

    Attributes:
        name: name of the measure; a head as "1-10", layer and head from 1.
        pearson, spearman: correlations over the tokens of all texts; NaN if one side is constant.
        tokens: number of tokens.
    """

    name: str
    pearson: float
    spearman: float
    tokens: int


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
    return _follows("impact matrix", [impact(encoder, text).columns for text in texts], weights)


def heads_follow(
    encoder: Encoder, texts: Sequence[str], weights: Sequence[Measure], *, limits: Limits | None = None
) -> tuple[Follows, ...]:
    """Correlate every head's diagonal attention with TF-IDF weights (Table 4), sorted by Spearman's correlation.

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
    results = [
        _follows(f"{layer + 1}-{head + 1}", [diagonals[i][layer, head] for i in range(len(texts))], weights)
        for layer in range(layers)
        for head in range(heads)
    ]
    return tuple(sorted(results, key=lambda f: math.inf if math.isnan(f.spearman) else -f.spearman))


def _follows(name: str, measured: Sequence[Measure], weights: Sequence[Measure]) -> Follows:
    a, b = np.concatenate(measured), np.concatenate(weights)
    return Follows(name, pearson(a, b), spearman(a, b), len(a))
