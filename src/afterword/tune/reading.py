"""One forward for many methods: their token weights, and the hidden states that the weights apply to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..backbone.backbone import Backbone
from ..encode.sentences import Weighing, precision_of, sentence_targets, weigh
from ..text.batch import Batch
from .recipes import Family

CELLS = 1 << 21
"""How many numbers of vectors are computed at once: 8 MB in float32."""


@dataclass(frozen=True)
class Reading:
    """What a family needs of a forward over T texts.

    Attributes:
        batch: the batch, with only the copies that the family's layout has.
        rows: token weights of R weightings, per group (G, R, n).
        states: hidden states of S layers (N, S, D).
    """

    batch: Batch
    rows: list[Tensor]
    states: Tensor

    @property
    def nbytes(self) -> int:
        """Memory of weights and states, in bytes."""
        return self.states.nbytes + sum(rows.nbytes for rows in self.rows)

    def vectors(self, chosen: slice | list[int]) -> Tensor:
        """The vectors of the chosen weightings in all layers (T, R, S, D)."""
        flat = self.states.flatten(1)
        width = self.rows[0][:, chosen].shape[1]
        out = flat.new_empty(self.batch.texts, width, flat.shape[1])
        for group, rows in zip(self.batch.groups, self.rows, strict=True):
            out.index_copy_(0, group.text, torch.bmm(rows[:, chosen], group.slice(flat)))
        return out.view(self.batch.texts, width, *self.states.shape[1:])

    def total(self) -> Tensor:
        """The sum of the vectors of all texts, in float64 (R, S, D)."""
        flat = self.states.flatten(1)
        total = flat.new_zeros(self.rows[0].shape[1], flat.shape[1], dtype=torch.float64)
        for group, rows in zip(self.batch.groups, self.rows, strict=True):
            total += rows.transpose(0, 1).flatten(1) @ group.slice(flat).flatten(0, 1)
        return total.unflatten(1, self.states.shape[1:])  # type: ignore[no-any-return]

    def parts(self) -> Iterator[tuple[slice, Tensor]]:
        """The vectors of all weightings, in parts that fit into the processor's cache."""
        total = self.rows[0].shape[1]
        step = max(1, CELLS // max(self.batch.texts * self.states[0].numel(), 1))
        for first in range(0, total, step):
            chosen = slice(first, min(first + step, total))
            yield chosen, self.vectors(chosen)


def read(backbone: Backbone, families: Sequence[Family], batch: Batch) -> list[Reading]:
    """Run a batch once for several families that share its layout and its bidirectional layers.

    Args:
        backbone: the model.
        families: a family whose layout has fewer copies than the batch reads only the first ones.
        batch: packed texts, each in one segment.
    """
    dtype = precision_of(backbone)
    views = [batch.limited(family.first.layout.total_copies) for family in families]
    weighings = [
        [Weighing(weigh, view, sentence_targets(backbone, weigh, view, dtype)) for weigh in family.weigh]
        for family, view in zip(families, views, strict=True)
    ]
    layers = [family.layers for family in families]
    everything = frozenset(layer for part in layers for layer in part)
    trace, rows = weigh(
        backbone, batch, [weighing for part in weighings for weighing in part], everything, families[0].first.sight
    )
    stacks = {part: torch.stack([trace.states[x].to(dtype) for x in part], 1) for part in dict.fromkeys(layers)}
    rest = iter(rows)
    readings = []
    for view, part, own in zip(views, layers, weighings, strict=True):
        by_group = zip(*(next(rest) for _ in own), strict=True)
        joined = [torch.cat(parts, 1) if len(parts) > 1 else parts[0] for parts in by_group]
        readings.append(Reading(view, joined, stacks[part]))
    return readings
