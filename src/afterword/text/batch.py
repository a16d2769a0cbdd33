"""A flat batch: the tokens of all its texts laid end to end, segments of one length side by side. No padding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from ..shapes import Tokens
from .segments import Segment, TokenizedText

Member = tuple[int, Segment]
"""A segment and the index of its text in the batch."""

TEMPLATE, SPECIAL = 0, -1
"""What `Group.copy` says of a token that belongs to no copy of the text."""


@dataclass(frozen=True)
class Group:
    """Segments of one length n: G of them, contiguous on the flat axis.

    Attributes:
        start, count, length: where the group begins, G, n.
        text: index in the batch of each segment's text (G,); -1 where the vector does not read the segment.
        spans: half-open token span of each copy (G, copies, 2).
        special: special tokens in front and behind (G, 2).
        first: index in its text of the segment's first copied token (G,).
        part: share of its text that the segment's copies hold (G,).
        final: whether its text ends in it (G,).
        tokens: token ids (G, n).
        leading: so many segments, the first ones, begin with the batch's lead.
        limit: how many copies a method sees, where a longer forward is shared.
    """

    start: int
    count: int
    length: int
    text: Tensor
    spans: Tensor
    special: Tensor
    first: Tensor
    part: Tensor
    final: Tensor
    tokens: Tensor
    with_prefix: int = 0
    limit: int | None = None

    @cached_property
    def at(self) -> Tensor:
        """Token indices (1, n)."""
        return torch.arange(self.length, device=self.tokens.device)[None]

    @cached_property
    def copies(self) -> int:
        """How many copies of the text a method sees."""
        return self.spans.shape[1] if self.limit is None else self.limit

    @cached_property
    def copy(self) -> Tensor:
        """Which copy each token belongs to, from 1 (G, n); 0 = template, -1 = special."""
        out = torch.zeros(self.count, self.length, dtype=torch.int8, device=self.tokens.device)
        for c in range(self.spans.shape[1]):
            start, end = self.spans[:, c].T[..., None]
            out = out.masked_fill((self.at >= start) & (self.at < end), c + 1)
        front, behind = self.special.T[..., None]
        return out.masked_fill((self.at < front) | (self.at >= self.length - behind), SPECIAL)

    @cached_property
    def scope(self) -> Tensor:
        """Tokens that exist for the method (G, n): all, less the copies past `limit`."""
        within: Tensor = self.copy <= self.copies
        return within

    def limited(self, copies: int) -> Group:
        """This group as a method of fewer copies sees it. Exact where later tokens cannot change earlier ones."""
        return replace(self, limit=copies)

    def slice(self, flat: Tensor) -> Tensor:
        """A flat (N, ...) tensor's part (G, n, ...)."""
        part = flat[self.start : self.start + self.count * self.length]
        return part.view(self.count, self.length, *part.shape[1:])


@dataclass(frozen=True)
class Batch:
    """What one forward reads.

    Attributes:
        tokens: ids (N,).
        position: position of each token in its segment (N,).
        groups: the segments by length; together they cover the flat axis.
        texts: how many texts, T.
        source: whose state each token lends (N,); None = its own. In a chunked text the tokens of a chunk's
            first copy lend those of the full pass.
        lead: so many tokens many of its segments begin with; 0 = none.
    """

    tokens: Tokens
    position: Tokens
    groups: tuple[Group, ...]
    texts: int
    source: Tensor | None = None
    prefix: int = 0

    @property
    def runs(self) -> tuple[tuple[int, int, int], ...]:
        """(start, G, n) of each group."""
        return tuple((g.start, g.count, g.length) for g in self.groups)

    def limited(self, copies: int) -> Batch:
        """This batch as a method of fewer copies sees it."""
        return replace(self, groups=tuple(g.limited(copies) for g in self.groups))


def lay(writings: Sequence[TokenizedText], device: torch.device | str = "cpu") -> Batch:
    """Lay texts end to end.

    Args:
        writings: one per text, each with the same number of copies.
        device: where the tensors go.

    Returns:
        The batch; its texts keep their order as indices, its tokens are ordered by segment length. A lead is its
        own only where all leads in it are the same tokens, as those of one layout are.
    """
    rows = [(len(s.ids), s.copies, s.prefix, t, i) for t, w in enumerate(writings) for i, s in enumerate(w.segments)]
    rows.sort(key=lambda r: (-r[0], r[1], -r[2]))
    flat: list[int] = []
    where: dict[tuple[int, int], int] = {}
    groups = []
    for begin, end in _runs([r[:2] for r in rows]):  # copies at one place: what reads attention reads one run of it
        start = len(flat)
        for *_, t, i in rows[begin:end]:
            where[t, i] = len(flat)
            flat += writings[t].segments[i].ids
        members = [(t, writings[t].segments[i]) for *_, t, i in rows[begin:end]]
        groups.append((start, members))
    tokens = torch.tensor(flat, dtype=torch.long, device=device)
    made = tuple(_group(start, members, tokens) for start, members in groups)
    position = torch.cat([g.at.expand(g.count, -1).reshape(-1) for g in made]) if made else tokens
    chunked = any(len(w.segments) > 1 for w in writings)
    leads = {tuple(s.ids[: s.prefix]) for w in writings for s in w.segments if s.prefix}
    prefix = len(leads.pop()) if len(leads) == 1 else 0
    return Batch(tokens, position, made, len(writings), _sources(writings, where, tokens) if chunked else None, prefix)


def _runs(kinds: Sequence[object]) -> Iterator[tuple[int, int]]:
    begin = 0
    for i in range(1, len(kinds) + 1):
        if i == len(kinds) or kinds[i] != kinds[begin]:
            yield begin, i
            begin = i


def _group(start: int, members: Sequence[Member], tokens: Tensor) -> Group:
    n = len(members[0][1].ids)
    most = max(len(s.copies) for _, s in members)  # a full pass has one copy, its chunks have several
    return Group(
        start,
        len(members),
        n,
        text=tokens.new_tensor([t if s.pooled else -1 for t, s in members]),
        spans=tokens.new_tensor([[*s.copies, *[(0, 0)] * (most - len(s.copies))] for _, s in members]),
        special=tokens.new_tensor([s.special for _, s in members]),
        first=tokens.new_tensor([s.first for _, s in members]),
        part=torch.tensor([s.part for _, s in members], dtype=_precise(tokens.device), device=tokens.device),
        final=torch.tensor([s.final for _, s in members], device=tokens.device),
        tokens=tokens[start : start + len(members) * n].view(len(members), n),
        with_prefix=sum(s.prefix > 0 for _, s in members),
    )


def _precise(device: torch.device) -> torch.dtype:
    """The most precise type that a device computes with: those of Apple and Intel have no float64."""
    return torch.float64 if device.type in ("cpu", "cuda") else torch.float32


def _sources(writings: Sequence[TokenizedText], where: dict[tuple[int, int], int], tokens: Tensor) -> Tensor:
    source = torch.arange(len(tokens), device=tokens.device)
    for t, w in enumerate(writings):
        if len(w.segments) == 1:
            continue
        full, origin = w.segments[0], where[t, 0]
        for i, s in enumerate(w.segments[1:], 1):
            (a, b), own = s.copies[0], where[t, i]
            at = origin + full.copies[0][0] + s.first
            source[own + a : own + b] = torch.arange(at, at + b - a, device=tokens.device)
    return source
