"""The packed input of one forward: a shared prefix once, then the tokens of each segment behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..shapes import Tokens
from ..text.batch import Batch, Group
from .attention_masks import FILLER, PackedGroup


@dataclass(frozen=True)
class PackedBatch:
    """The tokens of one forward, concatenated. P is their number, N that of the batch.

    Attributes:
        tokens: token ids (P,).
        position: position of each token in its segment (P,).
        groups: segments of one length, in order.
        size: N.
        index: of each of the batch's tokens, its index here (N,); None = the first N tokens, in order.
        carried: indices here of the templates' placeholders, and of the last token, special ones aside, of the
            segment of each (2, S); None if there is none.
    """

    tokens: Tokens
    position: Tokens
    groups: tuple[PackedGroup, ...]
    size: int
    index: Tensor | None = None
    carried: Tensor | None = None

    def back(self, states: Tensor) -> Tensor:
        """States (P, ...) in the order of the batch's tokens (N, ...)."""
        return states[: self.size] if self.index is None else states.index_select(0, self.index)

    def positions(self, first: int = 0, skipped: int | None = None) -> Tensor:
        """The position of each token (P,).

        Args:
            first: position of a text's first token.
            skipped: id of a token that takes no position; it gets position `first` - 1 itself. None = there is none.
        """
        positions = self.position + first
        if skipped is None or not bool((without := self.tokens == skipped).any()):
            return positions
        for group in self.groups:
            part = slice(group.start, group.start + group.segments * group.length)
            counted = ~without[part].view(group.segments, group.length)
            in_front = int((~without[group.prefix.start : group.prefix.stop]).sum())
            positions[part] = ((counted.cumsum(1) + in_front) * counted + first - 1).flatten()
        return positions


def pack(batch: Batch, numbers: Sequence[int], prefix: int = 0) -> PackedBatch:
    """The input of one forward, on the batch's device.

    The shared prefix stands right in front of the longest segment that begins with it. The first tokens are therefore
    always one whole segment, the longest one: a model's mask function is called on their indices.

    Args:
        batch: the texts.
        numbers: of the groups that run, one after another in the batch, longest first.
        prefix: length of the shared prefix, which then runs once; 0 = it runs in every segment.
    """
    groups = [(i, batch.groups[i]) for i in numbers]
    if not prefix:
        start, end = groups[0][1].start, groups[-1][1].end
        plain = tuple(PackedGroup(i, g.start - start, g.count, g.length) for i, g in groups)
        carried = [_carried(g, g.start - start, g.slots) for _, g in groups if g.slots is not None]
        moved = torch.cat(carried, 1) if carried else None
        return PackedBatch(batch.tokens[start:end], batch.position[start:end], plain, end - start, None, moved)
    ids_of: list[Tensor] = []
    packed: list[PackedGroup] = []
    indices: list[Tensor] = []
    size, place = 0, range(0)  # place: indices of the shared prefix
    for number, group in groups:
        with_prefix = group.with_prefix
        if with_prefix and not place:
            ids_of, packed = [*ids_of, group.tokens[0, :prefix]], [*packed, PackedGroup(FILLER, size, 1, prefix)]
            place = range(size, size := size + prefix)
        for ids, shared in ((group.tokens[:with_prefix, prefix:], place), (group.tokens[with_prefix:], range(0))):
            if len(ids):
                own = torch.arange(size, size + ids.numel(), device=ids.device).view(ids.shape)
                indices.append(torch.cat([own.new_tensor(shared).expand(len(ids), -1), own], 1).flatten())
                ids_of.append(ids.flatten())
                packed.append(PackedGroup(number, size, len(ids), ids.shape[1], shared))
                size += ids.numel()
    tokens, index = torch.cat(ids_of), torch.cat(indices)
    position = torch.cat(
        [torch.arange(g.length, device=tokens.device).add(len(g.prefix)).repeat(g.segments) for g in packed]
    )
    return PackedBatch(tokens, position, tuple(packed), len(index), index if place else None)


def _carried(group: Group, start: int, slots: Tensor) -> Tensor:
    """Indices of a group's placeholders, and of the last token of each one's segment (2, S)."""
    rows = start + group.length * torch.arange(group.count, device=group.flat.device)[:, None]
    last = (rows + group.length - 1 - group.special[:, 1:]).expand_as(slots)
    return torch.stack([rows + slots, last]).flatten(1)
