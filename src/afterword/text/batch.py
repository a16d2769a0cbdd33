"""A packed batch: the tokens of all its texts concatenated, segments of equal length together. No padding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from ..shapes import Tokens
from .segments import SPECIAL, Segment, TokenizedText

Member = tuple[int, Segment]
"""A segment and the index of its text in the batch."""


@dataclass(frozen=True)
class Group:
    """The G segments of one length n, contiguous in the batch.

    Attributes:
        start, count, length: index of the group's first token in the batch, G, n.
        text: index in the batch of each segment's text (G,); -1 if the text's vector does not read the segment.
        spans: half-open token span of each copy (G, copies, 2).
        special: number of special tokens in front and behind (G, 2).
        first: index in its text of the first token of the segment's copies (G,).
        part: share of its text that each of the segment's copies holds (G,).
        final: whether the text ends in this segment (G,).
        tokens: token ids (G, n).
        with_prefix: the number of segments, the first ones, that begin with the batch's shared prefix.
        limit: how many copies a method sees, if several methods share a forward with more; None = all.
        slots: index in each segment of the template's placeholders (G, S); None if there is none.
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
    slots: Tensor | None = None

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
        """Whether the method sees each token (G, n): all but those of the copies past `limit`."""
        within: Tensor = self.copy <= self.copies
        return within

    def limited(self, copies: int) -> Group:
        """This group as a method with fewer copies sees it; exact if later tokens cannot change earlier ones."""
        return replace(self, limit=copies)

    def slice(self, flat: Tensor) -> Tensor:
        """The part (G, n, ...) of a tensor over the batch (N, ...) that belongs to this group."""
        part = flat[self.start : self.start + self.count * self.length]
        return part.view(self.count, self.length, *part.shape[1:])


@dataclass(frozen=True)
class Batch:
    """The input of one forward.

    Attributes:
        tokens: token ids (N,).
        position: position of each token in its segment (N,).
        groups: the segments by length; together they are the whole batch.
        texts: the number of texts, T.
        source: index of the token whose state each token uses (N,); None = its own. In a chunked text the tokens of
            a chunk's first copy use the states of the full pass.
        prefix: length of the shared prefix, with which many segments begin; 0 = none.
    """

    tokens: Tokens
    position: Tokens
    groups: tuple[Group, ...]
    texts: int
    source: Tensor | None = None
    prefix: int = 0

    def limited(self, copies: int) -> Batch:
        """This batch as a method with fewer copies sees it."""
        return replace(self, groups=tuple(g.limited(copies) for g in self.groups))


def lay(texts: Sequence[TokenizedText], device: torch.device | str = "cpu") -> Batch:
    """Concatenate tokenized texts.

    Args:
        texts: each with the same number of copies.
        device: of the batch's tensors.

    Returns:
        The batch. Its texts keep their indices, its tokens are ordered by segment length. It has a shared prefix only
        if that of all its texts is the same, as it is for one layout.
    """
    rows = [(len(s.ids), s.copies, s.prefix, t, i) for t, w in enumerate(texts) for i, s in enumerate(w.segments)]
    rows.sort(key=lambda r: (-r[0], r[1], -r[2]))
    flat: list[int] = []
    where: dict[tuple[int, int], int] = {}
    groups = []
    for begin, end in _runs([r[:2] for r in rows]):  # equal spans too, so that taps read contiguous columns
        start = len(flat)
        for *_, t, i in rows[begin:end]:
            where[t, i] = len(flat)
            flat += texts[t].segments[i].ids
        members = [(t, texts[t].segments[i]) for *_, t, i in rows[begin:end]]
        groups.append((start, members))
    tokens = torch.tensor(flat, dtype=torch.long, device=device)
    grouped = tuple(_group(start, members, tokens) for start, members in groups)
    position = torch.cat([g.at.expand(g.count, -1).reshape(-1) for g in grouped]) if grouped else tokens
    chunked = any(len(w.segments) > 1 for w in texts)
    prefixes = {tuple(s.ids[: s.prefix]) for w in texts for s in w.segments if s.prefix}
    prefix = len(prefixes.pop()) if len(prefixes) == 1 else 0
    return Batch(tokens, position, grouped, len(texts), _sources(texts, where, tokens) if chunked else None, prefix)


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
        slots=tokens.new_tensor([s.slots for _, s in members]) if members[0][1].slots else None,
    )


def _precise(device: torch.device) -> torch.dtype:
    """float64 if the device computes with it; GPUs of Apple and Intel do not."""
    return torch.float64 if device.type in ("cpu", "cuda") else torch.float32


def _sources(texts: Sequence[TokenizedText], where: dict[tuple[int, int], int], tokens: Tensor) -> Tensor:
    source = torch.arange(len(tokens), device=tokens.device)
    for t, w in enumerate(texts):
        if len(w.segments) == 1:
            continue
        full, origin = w.segments[0], where[t, 0]
        for i, s in enumerate(w.segments[1:], 1):
            (a, b), own = s.copies[0], where[t, i]
            at = origin + full.copies[0][0] + s.first
            source[own + a : own + b] = torch.arange(at, at + b - a, device=tokens.device)
    return source
