"""The tokens of one forward as the model reads them: what many texts begin with once, then what each has of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..shapes import Tokens
from ..text.batch import Group
from .attention_masks import FILLER, PackedGroup


@dataclass(frozen=True)
class PackedBatch:
    """Tokens end to end.

    Attributes:
        tokens, position: (S,).
        runs: segments as they lie there.
        size: N, the tokens of the batch that this is.
        index: where each of them lies (N,); None = in their order, from the first.
    """

    tokens: Tokens
    position: Tokens
    runs: tuple[PackedGroup, ...]
    size: int
    index: Tensor | None = None

    def to(self, device: torch.device) -> PackedBatch:
        """The same on another device."""
        index = None if self.index is None else self.index.to(device)
        return replace(self, tokens=self.tokens.to(device), position=self.position.to(device), index=index)

    def back(self, states: Tensor) -> Tensor:
        """States (S, ...) on the batch's own axis (N, ...)."""
        return states[: self.size] if self.index is None else states.index_select(0, self.index)

    def positions(self, first: int = 0, skipped: int | None = None) -> Tensor:
        """The position of each token (S,).

        Args:
            first: of a text's first token.
            skipped: a token that is not counted, and stands itself in front of the first one; None = all are.
        """
        at = self.position + first
        if skipped is None or not bool((lost := self.tokens == skipped).any()):
            return at
        for run in self.runs:
            part = slice(run.start, run.start + run.segments * run.length)
            kept = ~lost[part].view(run.segments, run.length)
            in_front = int((~lost[run.prefix.start : run.prefix.stop]).sum())
            at[part] = ((kept.cumsum(1) + in_front) * kept + first - 1).flatten()
        return at


def pack(groups: Sequence[tuple[int, Group]], prefix: int = 0, whole: int = 1) -> PackedBatch:
    """Lay segments out for one forward.

    The lead stands right in front of the longest segment that begins with it: the first tokens of a packed batch are
    always one whole segment, the longest there is, of which a model's rule of what sees what can be asked.

    Args:
        groups: with their numbers, longest first.
        lead: so many tokens, with which `Group.with_prefix` segments begin, are there once; 0 = in every segment.
        whole: the batch is filled to a multiple of so many tokens, with one-token texts that nobody reads.
    """
    laid: list[Tensor] = []
    runs: list[PackedGroup] = []
    places: list[Tensor] = []
    size, place = 0, range(0)
    for number, group in groups:
        with_prefix = group.with_prefix if prefix else 0
        if with_prefix and not place:
            laid, runs = [*laid, group.tokens[0, :prefix]], [*runs, PackedGroup(FILLER, size, 1, prefix)]
            place = range(size, size := size + prefix)
        for ids, shared in ((group.tokens[:with_prefix, prefix:], place), (group.tokens[with_prefix:], range(0))):
            if len(ids):
                own = torch.arange(size, size + ids.numel(), device=ids.device).view(ids.shape)
                places.append(torch.cat([own.new_tensor(shared).expand(len(ids), -1), own], 1).flatten())
                laid.append(ids.flatten())
                runs.append(PackedGroup(number, size, len(ids), ids.shape[1], shared))
                size += ids.numel()
    if spare := -size % whole:
        laid, runs = [*laid, laid[0][:1].expand(spare)], [*runs, PackedGroup(FILLER, size, spare, 1)]
    index = torch.cat(places)
    tokens = torch.cat(laid)
    position = torch.cat(
        [torch.arange(r.length, device=tokens.device).add(len(r.prefix)).repeat(r.segments) for r in runs]
    )
    return PackedBatch(tokens, position, tuple(runs), len(index), index if place else None)
