"""Run one batch through the model and compute its vectors: ``embedding = weights @ states``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..backbone.attention_taps import Tap
from ..backbone.backbone import Backbone, Trace
from ..backbone.bidirectional import Sight
from ..backbone.facts import Layer
from ..errors import MethodError
from ..methods import Method
from ..methods.code_hash import is_own
from ..methods.targets import word_targets
from ..methods.weights import Weighting
from ..text.batch import Batch
from ..text.words import WordTokens


@dataclass(frozen=True)
class Weighed:
    """The token weights and hidden states of one method, for one batch.

    Attributes:
        batch: the batch; for a method of fewer copies than the batch has, only those.
        weights: token weights of each group (G, R, n).
        states: hidden states of all N tokens (N, D); a token of a shared prefix occurs once for each text.
    """

    batch: Batch
    weights: list[Tensor]
    states: Tensor


@dataclass(frozen=True)
class Weighing:
    """One of the weightings that are computed from the same forward.

    Attributes:
        weigh: how tokens are weighted.
        batch: the batch, perhaps without its last copies.
        targets: which tokens a vector stands for, for each group (G, R, n).
    """

    weigh: Weighting
    batch: Batch
    targets: list[Tensor]

    def rows(self, tap: Tap | None) -> list[Tensor]:
        """Token weights of each group (G, R, n).

        Raises:
            MethodError: a user's own weighting returns another shape.
        """
        weights = []
        for i, (group, target) in enumerate(zip(self.batch.groups, self.targets, strict=True)):
            rows = self.weigh(group, target, tap.result(i) if tap is not None else None)
            if is_own(type(self.weigh)):
                _check_own(self.weigh, rows, target)
            weights.append(rows)
        return weights


def _check_own(weigh: Weighting, rows: object, target: Tensor) -> None:
    """Validate what a user's own weighting returns."""
    if isinstance(rows, Tensor) and rows.shape == target.shape and rows.is_floating_point():
        return
    what = f"a {type(rows).__name__}"
    if isinstance(rows, Tensor):
        what = f"weights of the shape {tuple(rows.shape)} and the type {str(rows.dtype).removeprefix('torch.')}"
    raise MethodError(
        f"{type(weigh).__name__} gives {what}: give a tensor of floating-point numbers in the shape of targets, "
        f"{tuple(target.shape)}"
    )


def weigh(
    backbone: Backbone,
    batch: Batch,
    weighings: Sequence[Weighing],
    layers: frozenset[Layer],
    sight: Sight | None,
    *,
    keep_mode: bool = False,
) -> tuple[Trace, list[list[Tensor]]]:
    """Run a batch once, and compute the token weights of several weightings.

    Args:
        backbone: the model.
        batch: texts without padding, concatenated.
        weighings: the weightings.
        layers: the layers whose hidden states are returned.
        sight: layers with bidirectional attention.
        keep_mode: leave the model in its training or evaluation mode, so that dropout works as set.

    Returns:
        The hidden states; and for each weighting, its weights for each group (G, R, n).
    """
    taps = [w.weigh.tap(w.batch.groups, w.targets, backbone.facts.layers) for w in weighings]
    attached = [tap for tap in taps if tap is not None]
    weights = None if attached else [w.rows(None) for w in weighings]
    trace = backbone.forward(batch, layers, sight, attached, keep_mode=keep_mode)
    return trace, weights or [w.rows(tap) for w, tap in zip(weighings, taps, strict=True)]


def weights(
    backbone: Backbone,
    methods: Sequence[Method],
    batch: Batch,
    words: WordTokens | None = None,
    *,
    keep_mode: bool = False,
) -> list[Weighed]:
    """Run a batch once and compute token weights and states for several methods that share its layout.

    The arguments are those of `vectors` and `weigh`.

    Returns:
        The weights and states of each method.
    """
    if words is not None:
        methods = [replace(m, weigh=m.weigh.for_words()) for m in methods]
    dtype = precision_of(backbone)
    views = [batch if m.layout.chunk else batch.limited(m.layout.total_copies) for m in methods]
    weighings = [
        Weighing(m.weigh, view, _targets(backbone, m.weigh, view, words, dtype))
        for m, view in zip(methods, views, strict=True)
    ]
    layers = frozenset(layer for m in methods for layer in m.states.layers)
    trace, rows = weigh(backbone, batch, weighings, layers, methods[0].sight, keep_mode=keep_mode)
    results = []
    for method, view, weighed in zip(methods, views, rows, strict=True):
        states = method.states.mean(trace).to(dtype)
        results.append(Weighed(view, weighed, states if batch.source is None else states[batch.source]))
    return results


def precision_of(backbone: Backbone) -> torch.dtype:
    """The type in which states are weighted and added: float32, or float64 for a float64 model."""
    return torch.float64 if backbone.dtype == torch.float64 else torch.float32


def vectors(
    backbone: Backbone, methods: Sequence[Method], batch: Batch, words: WordTokens | None = None
) -> list[Tensor]:
    """The vectors of a batch by several methods that share its layout, from one forward.

    Args:
        backbone: the model.
        methods: methods with the same bidirectional layers; one of fewer copies than the batch reads only those.
        batch: texts without padding, concatenated.
        words: for each text, the tokens of each of its words; None for sentence vectors.

    Returns:
        For each method (T, R, D) in float32 or float64; R is 1 for sentence vectors, else the largest number of words
        of a text.
    """
    weighed = weights(backbone, methods, batch, words)
    return [combine(w.batch, w.weights, w.states) for w in weighed]


def _targets(
    backbone: Backbone, weigh: Weighting, batch: Batch, words: WordTokens | None, dtype: torch.dtype
) -> list[Tensor]:
    if words is not None:
        return [word_targets(group, words, weigh.which(group), dtype) for group in batch.groups]
    return sentence_targets(backbone, weigh, batch, dtype)


def sentence_targets(backbone: Backbone, weigh: Weighting, batch: Batch, dtype: torch.dtype) -> list[Tensor]:
    """Which tokens a sentence vector stands for, for each group (G, 1, n)."""
    mask_id = backbone.tokenizer.mask_id if weigh.pool == "mask" else None
    return [weigh.sentence(group, dtype, mask_id) for group in batch.groups]


def combine(batch: Batch, weights: Sequence[Tensor], states: Tensor) -> Tensor:
    """weights @ states for each text (T, R, D)."""
    out = states.new_zeros(batch.texts, weights[0].shape[1], states.shape[1])
    for group, rows in zip(batch.groups, weights, strict=True):
        if group.pooled:
            vectors = rows.to(states.dtype) @ group.slice(states)
            out.index_add_(0, group.text, vectors.to(out.dtype))  # autocast may have changed the type
    return out
