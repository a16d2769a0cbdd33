"""One batch through the model and out as vectors: ``embedding = weights @ states``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..backbone.attention_taps import Tap
from ..backbone.backbone import Backbone
from ..backbone.skip_unread import MOST, WORTH
from ..methods import Method
from ..methods.targets import word_targets
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


def weights(
    backbone: Backbone,
    methods: Sequence[Method],
    batch: Batch,
    words: Found | None = None,
    *,
    keep_mode: bool = False,
    weighed_only: bool = False,
) -> list[Weighed]:
    """Run a batch once and weigh it by several methods that share its layout; arguments as for `vectors`.

    With ``keep_mode`` the model runs in its own mode, dropout included, also without gradients. With ``weighed_only``
    states of tokens that no method weighs may be anything finite.
    """
    facts = backbone.facts
    if words is not None:
        methods = [replace(m, weigh=m.weigh.for_words()) for m in methods]
    dtype = torch.float64 if backbone.dtype == torch.float64 else torch.float32
    seen = [batch if m.layout.chunk else batch.limited(m.layout.total_copies) for m in methods]
    targets = [_targets(backbone, m, b, words, dtype) for m, b in zip(methods, seen, strict=True)]
    taps = [m.weigh.tap(b.groups, t, facts.layers) for m, b, t in zip(methods, seen, targets, strict=True)]
    layers = frozenset(layer for m in methods for layer in m.states.layers)
    read = [t for t in taps if t is not None]
    ahead = [_weigh(m, b, t) for m, b, t in zip(methods, seen, targets, strict=True)] if not read else []
    wanted = _wanted(batch, ahead) if weighed_only and ahead else None
    trace = backbone.forward(batch, layers, methods[0].sight, read, keep_mode=keep_mode, read=wanted)
    made = []
    for i, (method, view, rows, tap) in enumerate(zip(methods, seen, targets, taps, strict=True)):
        states = method.states.of(trace).to(dtype)
        weighed = ahead[i] if ahead else _weigh(method, view, rows, tap)
        made.append(Weighed(view, weighed, states if batch.source is None else states[batch.source]))
    return made


def _weigh(method: Method, batch: Batch, targets: list[Tensor], tap: Tap | None = None) -> list[Tensor]:
    return [
        method.weigh(g, r, tap.of(i) if tap is not None else None)
        for i, (g, r) in enumerate(zip(batch.groups, targets, strict=True))
    ]


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


def _targets(backbone: Backbone, method: Method, batch: Batch, words: Found | None, dtype: torch.dtype) -> list[Tensor]:
    if words is not None:
        return [word_targets(g, words, method.weigh.which(g), dtype) for g in batch.groups]
    mask_id = backbone.tokenizer.mask_id if method.weigh.pool == "mask" else None
    return [method.weigh.sentence(g, dtype, mask_id) for g in batch.groups]


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
