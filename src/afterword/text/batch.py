"""A packed batch: the tokens of all its texts, concatenated without padding and grouped by segment length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby

import torch
from torch import Tensor

from ..shapes import Tokens
from .segments import SPECIAL, Segment, TokenizedText

Member = tuple[int, Segment]
"""A segment and the index of its text in the batch."""


@dataclass(frozen=True, eq=False)
class Group:
    """The G segments of length n, contiguous in the batch. Its tensors are computed on first use.

    Attributes:
        start: index of the group's first token in the batch.
        length: n, the number of tokens in each segment.
        members: the segments, each with the index of its text in the batch.
        flat: the token ids of the batch (N,).
        limit: how many copies a method sees, if it shares a forward with methods of more copies; None = all.
    """

    start: int
    length: int
    members: Sequence[Member]
    flat: Tensor
    limit: int | None = None

    @property
    def count(self) -> int:
        """G, the number of segments."""
        return len(self.members)

    @property
    def end(self) -> int:
        """One past the index of the group's last token in the batch."""
        return self.start + self.count * self.length

    @property
    def pooled(self) -> bool:
        """Whether the texts' vectors use these segments; False in the full pass of a chunked text."""
        return self.members[0][1].pooled

    @property
    def with_prefix(self) -> int:
        """The number of segments that start with the batch's shared prefix; they come first."""
        return sum(s.prefix > 0 for _, s in self.members)

    @cached_property
    def total_copies(self) -> int:
        """The largest number of copies in any segment: a full pass has one copy, its chunks have several."""
        return max(len(s.copies) for _, s in self.members)

    @cached_property
    def tokens(self) -> Tensor:
        """Token ids (G, n)."""
        return self.slice(self.flat)

    @cached_property
    def text(self) -> Tensor:
        """The index in the batch of each segment's text (G,); -1 in a full pass."""
        return self.flat.new_tensor([t if s.pooled else -1 for t, s in self.members])

    @cached_property
    def spans(self) -> Tensor:
        """The half-open token span of each copy (G, copies, 2)."""
        copies = self.total_copies
        return self.flat.new_tensor([[*s.copies, *[(0, 0)] * (copies - len(s.copies))] for _, s in self.members])

    @cached_property
    def special(self) -> Tensor:
        """The numbers of special tokens before and after all other tokens (G, 2)."""
        return self.flat.new_tensor([s.special for _, s in self.members])

    @cached_property
    def first(self) -> Tensor:
        """The index in its text of the first token of each segment's copies (G,)."""
        return self.flat.new_tensor([s.first for _, s in self.members])

    @cached_property
    def part(self) -> Tensor:
        """The share of its text that each copy in a segment contains (G,)."""
        device = self.flat.device
        dtype = torch.float64 if device.type in ("cpu", "cuda") else torch.float32  # other GPUs have no float64
        return torch.tensor([s.part for _, s in self.members], dtype=dtype, device=device)

    @cached_property
    def final(self) -> Tensor:
        """Whether the text ends in this segment (G,)."""
        return torch.tensor([s.final for _, s in self.members], device=self.flat.device)

    @cached_property
    def slots(self) -> Tensor | None:
        """The indices of the template's placeholders in each segment (G, slots); None if there are none."""
        slots = [s.slots for _, s in self.members]
        return self.flat.new_tensor(slots) if slots[0] else None

    @cached_property
    def at(self) -> Tensor:
        """Token indices (1, n)."""
        return torch.arange(self.length, device=self.flat.device)[None]

    @property
    def copies(self) -> int:
        """How many copies of the text a method sees."""
        return self.total_copies if self.limit is None else self.limit

    @cached_property
    def copy(self) -> Tensor:
        """The copy that each token belongs to (G, n), counted from 1; 0 = template, -1 = special token."""
        out = torch.zeros(self.count, self.length, dtype=torch.int8, device=self.flat.device)
        for c in range(self.total_copies):
            start, end = self.spans[:, c].T[..., None]
            out = out.masked_fill((self.at >= start) & (self.at < end), c + 1)
        before, after = self.special.T[..., None]
        return out.masked_fill((self.at < before) | (self.at >= self.length - after), SPECIAL)

    @cached_property
    def scope(self) -> Tensor:
        """Whether the method sees each token (G, n): all but those in copies past `limit`."""
        if self.copies >= self.total_copies:
            return torch.ones(self.count, self.length, dtype=torch.bool, device=self.flat.device)
        within: Tensor = self.copy <= self.copies
        return within

    def limited(self, copies: int) -> Group:
        """Limit the group to fewer copies; exact if later tokens cannot change earlier ones."""
        return self if copies >= self.total_copies else replace(self, limit=copies)

    def slice(self, flat: Tensor) -> Tensor:
        """Return this group's part (G, n, ...) of a tensor over the batch (N, ...)."""
        return flat[self.start : self.end].view(self.count, self.length, *flat.shape[1:])


@dataclass(frozen=True)
class Batch:
    """The input of one forward.

    Attributes:
        tokens: token ids (N,).
        position: position of each token in its segment (N,).
        groups: the segments of the batch, grouped by length.
        texts: the number of texts, T.
        source: for each token, the index of the token whose state it uses (N,); None = its own. In a chunked text, the
            tokens of a chunk's first copy use the states of the full pass.
        prefix: length of the prefix that many segments share; 0 = none.
    """

    tokens: Tokens
    position: Tokens
    groups: tuple[Group, ...]
    texts: int
    source: Tensor | None = None
    prefix: int = 0

    def limited(self, copies: int) -> Batch:
        """Limit the batch to fewer copies; see `Group.limited`."""
        groups = tuple(group.limited(copies) for group in self.groups)
        return self if groups == self.groups else replace(self, groups=groups)


def lay(texts: Sequence[TokenizedText], device: torch.device | str = "cpu") -> Batch:
    """Concatenate tokenized texts with equal numbers of copies into a batch on a device.

    Texts keep their indices; tokens are ordered by segment length. The batch has a shared prefix only if all its texts
    have the same one, as texts of one layout do.
    """
    rows = [((len(s.ids), s.copies, s.pooled), s.prefix, (t, s)) for t, w in enumerate(texts) for s in w.segments]
    rows.sort(key=lambda r: (-r[0][0], *r[0][1:], -r[1]))
    ids = [token for *_, (_, s) in rows for token in s.ids]
    places = [i for (n, *_), *_ in rows for i in range(n)]
    tokens, position = torch.tensor([ids, places], dtype=torch.long, device=device)
    groups: list[Group] = []
    for (n, *_), run in groupby(rows, key=lambda r: r[0]):  # also by spans, so that taps read contiguous columns
        groups.append(Group(groups[-1].end if groups else 0, n, [member for *_, member in run], tokens))
    prefixes = {tuple(s.ids[: s.prefix]) for _, prefix, (_, s) in rows if prefix}
    prefix = len(prefixes.pop()) if len(prefixes) == 1 else 0
    source = _sources(texts, groups, tokens) if any(len(w.segments) > 1 for w in texts) else None
    return Batch(tokens, position, tuple(groups), len(texts), source, prefix)


def _sources(texts: Sequence[TokenizedText], groups: Sequence[Group], tokens: Tensor) -> Tensor:
    """`Batch.source` for chunked texts."""
    source = torch.arange(len(tokens), device=tokens.device)
    where = {id(s): g.start + i * g.length for g in groups for i, (_, s) in enumerate(g.members)}
    for w in texts:
        full, *chunks = w.segments
        for s in chunks:
            (a, b), start = s.copies[0], where[id(s)]
            at = where[id(full)] + full.copies[0][0] + s.first
            source[start + a : start + b] = torch.arange(at, at + b - a, device=tokens.device)
    return source
