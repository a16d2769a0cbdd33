"""One batch through the model and out as vectors: ``embedding = weights @ states``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..backbone.attention_taps import Tap
from ..backbone.backbone import Backbone, Layer, Trace
from ..backbone.bidirectional import Sight
from ..backbone.skip_unread import MOST, WORTH
from ..errors import MethodError
from ..methods import Method
from ..methods.code_hash import is_own
from ..methods.targets import word_targets
from ..methods.weights import Weighting
from ..text.batch import Batch
from ..text.words import Found


@dataclass(frozen=True)
class Weighed:
    """One method's half of a forward.

    Attributes:
        batch: as the method sees it.
        weights: per group (G, R, n).
        states: (N, D), each token's own or the one that is lent to it.
    """

    batch: Batch
    weights: list[Tensor]
    states: Tensor


@dataclass(frozen=True)
class Weighing:
    """One weighting of a forward.

    Attributes:
        weigh: how tokens are weighted.
        batch: as the weighting sees it, perhaps without the last copies.
        targets: which tokens a vector stands for, per group (G, R, n).
    """

    weigh: Weighting
    batch: Batch
    targets: list[Tensor]

    def rows(self, tap: Tap | None) -> list[Tensor]:
        """Weights, per group (G, R, n).

        Raises:
            MethodError: a weighting of the user's own gives another shape.
        """
        made = []
        for i, (group, target) in enumerate(zip(self.batch.groups, self.targets, strict=True)):
            rows = self.weigh(group, target, tap.of(i) if tap is not None else None)
            if is_own(type(self.weigh)) and rows.shape != target.shape:
                raise MethodError(
                    f"{type(self.weigh).__name__} gives weights of the shape {tuple(rows.shape)}: give the shape of "
                    f"targets, {tuple(target.shape)}"
                )
            made.append(rows)
        return made


def weigh(
    backbone: Backbone,
    batch: Batch,
    weighings: Sequence[Weighing],
    layers: frozenset[Layer],
    sight: Sight | None,
    *,
    keep_mode: bool = False,
    weighed_only: bool = False,
) -> tuple[Trace, list[list[Tensor]]]:
    """Run a batch once, and weigh its tokens in several ways.

    Args:
        backbone: the model.
        batch: texts laid end to end.
        weighings: any number.
        layers: the states that are wanted.
        sight: layers with bidirectional attention.
        keep_mode: run the model in its own mode, dropout included, also without gradients.
        weighed_only: states of tokens that nothing weighs may be anything finite.

    Returns:
        The states, and per weighing its weights by group (G, R, n).
    """
    taps = [one.weigh.tap(one.batch.groups, one.targets, backbone.facts.layers) for one in weighings]
    read = [tap for tap in taps if tap is not None]
    ahead = None if read else [one.rows(None) for one in weighings]
    wanted = _wanted(batch, ahead) if weighed_only and ahead else None
    trace = backbone.forward(batch, layers, sight, read, keep_mode=keep_mode, read=wanted)
    return trace, ahead or [one.rows(tap) for one, tap in zip(weighings, taps, strict=True)]


def weights(
    backbone: Backbone,
    methods: Sequence[Method],
    batch: Batch,
    words: Found | None = None,
    *,
    keep_mode: bool = False,
    weighed_only: bool = False,
) -> list[Weighed]:
    """Run a batch once and weigh it by several methods that share its layout; arguments as for `vectors` and `weigh`.

    Returns:
        Per method its weights and states.
    """
    if words is not None:
        methods = [replace(m, weigh=m.weigh.for_words()) for m in methods]
    dtype = precision_of(backbone)
    seen = [batch if m.layout.chunk else batch.limited(m.layout.total_copies) for m in methods]
    weighings = [
        Weighing(m.weigh, view, _targets(backbone, m.weigh, view, words, dtype))
        for m, view in zip(methods, seen, strict=True)
    ]
    layers = frozenset(layer for m in methods for layer in m.states.layers)
    trace, rows = weigh(
        backbone, batch, weighings, layers, methods[0].sight, keep_mode=keep_mode, weighed_only=weighed_only
    )
    made = []
    for method, view, weighed in zip(methods, seen, rows, strict=True):
        states = method.states.of(trace).to(dtype)
        made.append(Weighed(view, weighed, states if batch.source is None else states[batch.source]))
    return made


def precision_of(backbone: Backbone) -> torch.dtype:
    """The type in which states are weighted: float32, or float64 for a model in it."""
    return torch.float64 if backbone.dtype == torch.float64 else torch.float32


def _wanted(batch: Batch, weights: list[list[Tensor]]) -> Tensor | None:
    """Indices of the tokens that some method weighs, on the flat axis (R,); None where that saves nothing."""
    if len(batch.tokens) < WORTH or batch.tokens.device.type != "cpu":
        return None
    used = torch.zeros(len(batch.tokens), dtype=torch.bool, device=batch.tokens.device)
    for rows in weights:
        for group, weight in zip(batch.groups, rows, strict=True):
            part = used[group.start : group.start + group.count * group.length]
            part |= (weight != 0).any(1).flatten()
    read = used.nonzero()[:, 0]
    if batch.source is not None:
        read = batch.source[read].unique()
    return read if len(read) <= MOST * len(used) else None


def vectors(backbone: Backbone, methods: Sequence[Method], batch: Batch, words: Found | None = None) -> list[Tensor]:
    """The vectors of a batch by several methods that share its layout, from one forward.

    Args:
        backbone: the model.
        methods: with one sight; a method of fewer copies than the batch sees only those.
        batch: texts laid end to end.
        words: per text, per word, its tokens; None for sentence vectors.

    Returns:
        Per method (T, R, D) in float32 or better; R = 1 for sentences, the most words of a text for words.
    """
    weighed = weights(backbone, methods, batch, words, weighed_only=True)
    return [combine(w.batch, w.weights, w.states) for w in weighed]


def _targets(
    backbone: Backbone, weigh: Weighting, batch: Batch, words: Found | None, dtype: torch.dtype
) -> list[Tensor]:
    if words is not None:
        return [word_targets(group, words, weigh.which(group), dtype) for group in batch.groups]
    return sentence_targets(backbone, weigh, batch, dtype)


def sentence_targets(backbone: Backbone, weigh: Weighting, batch: Batch, dtype: torch.dtype) -> list[Tensor]:
    """Which tokens a sentence vector stands for, per group (G, 1, n)."""
    mask_id = backbone.tokenizer.mask_id if weigh.pool == "mask" else None
    return [weigh.sentence(group, dtype, mask_id) for group in batch.groups]


def combine(batch: Batch, weights: Sequence[Tensor], states: Tensor) -> Tensor:
    """weights @ states, text by text (T, R, D). A text's sum depends on its own length alone, to the last bit."""
    out = states.new_zeros(batch.texts, weights[0].shape[1], states.shape[1])
    for group, rows in zip(batch.groups, weights, strict=True):
        inside = group.of(states)
        read = group.text >= 0
        for r in range(rows.shape[1]):
            made = (rows[:, r, :, None].to(states.dtype) * inside).sum(1)
            out[:, r].index_add_(0, group.text[read], made[read])
    return out
