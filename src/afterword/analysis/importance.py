"""Whether a model's own measures of a token's importance follow TF-IDF: the impact matrix, and diagonal attention.

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
from ..backbone.backbone import LAST
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
    """How a measure of tokens follows TF-IDF.

    Attributes:
        name: of the measure; a head as "1-10", layer and head from 1.
        pearson, spearman: correlations over the tokens of all texts together; NaN where one side is constant.
        tokens: how many.
    """

    name: str
    pearson: float
    spearman: float
    tokens: int


def tfidf_weights(encoder: Encoder, texts: Sequence[str], corpus: Sequence[str]) -> list[Measure]:
    """TF-IDF of each content token: how often it stands in its text times its idf in the corpus (`TfIdf`)."""
    tokenizer = encoder.backbone.tokenizer
    inverse = TfIdf().weigh(count(corpus, tokenizer, encoder.backbone.vocabulary_size), tokenizer).double()
    return [tf_idf(torch.tensor([ids], dtype=torch.long), inverse)[0].numpy() for ids in tokenizer.ids(texts)]


def impact_follows(encoder: Encoder, texts: Sequence[str], weights: Sequence[Measure]) -> Follows:
    """How the impact matrix's column means follow the weights (Table 3).

    Args:
        encoder: see `impact`.
        texts: sentences; each takes N (N + 1) / 2 masked copies.
        weights: per text (N,), as `tfidf_weights` gives them.
    """
    return _follows("impact matrix", [impact(encoder, text).columns for text in texts], weights)


def heads_follow(
    encoder: Encoder, texts: Sequence[str], weights: Sequence[Measure], *, limits: Limits | None = None
) -> tuple[Follows, ...]:
    """How every head's attention of a token to itself follows the weights (Table 4), best Spearman first.

    Args:
        encoder: of any model whose attention can be read; its method is not used.
        texts: sentences.
        weights: per text (N,).
        limits: how much at a time.

    Raises:
        AttentionNotSeen: the model shows none.
        InputError: a text is over the model's length.
    """
    backbone = encoder.backbone
    backbone.require(True, None)
    writings = Layout().write(texts, backbone.tokenizer, encoder.max_length)
    if cut := [i for i, w in enumerate(writings) if w.kept < w.total]:
        raise InputError(f"text {cut[0]} is over max_length={encoder.max_length}: leave it out")
    found: dict[int, Measure] = {}

    def run(batch: Batch, indices: list[int]) -> dict[int, Measure]:
        tap, made = Diagonals(), {}
        backbone.forward(batch, frozenset({LAST}), taps=[tap])
        for g, group in enumerate(batch.groups):
            spans = group.spans[:, 0].tolist()
            for t, one, (start, end) in zip(group.text.tolist(), tap.result(g), spans, strict=True):
                made[indices[t]] = one[..., start:end].double().cpu().numpy()
        return made

    for _, measured in each(writings, run, (limits or Limits()).budget(backbone.device), backbone.device):
        found.update(measured)
    layers, heads = backbone.facts.layers, backbone.facts.heads
    made = [
        _follows(f"{layer + 1}-{head + 1}", [found[i][layer, head] for i in range(len(texts))], weights)
        for layer in range(layers)
        for head in range(heads)
    ]
    return tuple(sorted(made, key=lambda f: math.inf if math.isnan(f.spearman) else -f.spearman))


def _follows(name: str, measured: Sequence[Measure], weights: Sequence[Measure]) -> Follows:
    a, b = np.concatenate(measured), np.concatenate(weights)
    return Follows(name, pearson(a, b), spearman(a, b), len(a))
