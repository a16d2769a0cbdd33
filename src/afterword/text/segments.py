"""A tokenized text: one or more *segments*, whose tokens attend to each other.

Each copy of the text in a segment is a half-open span of token indices; tokens outside all spans belong to the
template or are special tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from .tokenizer import Offset

Span = tuple[int, int]

TEMPLATE, SPECIAL = 0, -1
"""The numbers of tokens that belong to no copy of the text; copies are numbered from 1."""

WORTH = 16
"""A shared prefix runs once for texts of at most this many times its length. Longer texts gain nothing measurable from
it, and they would need an attention mask, whose size grows with the square of their length."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Tokens that attend to each other.

    Attributes:
        ids: token ids (n,).
        copies: the half-open span of token indices of each copy of the text; empty where truncation cut it off.
        special: the number of special tokens in front of and behind all others.
        first: index in the text of the first token of each copy (not 0 in a later chunk).
        pooled: whether the text's vector reads this segment (False for a chunked text's full pass, from which the
            chunks only take states).
        part: the share of the text that each copy holds (less than 1 in a chunk).
        final: whether the text ends here.
        prefix: the number of tokens, fewer than n, with which this segment and others of the batch begin: the
            shared prefix; 0 = none.
        slots: the indices of the template's placeholders.
    """

    ids: list[int]
    copies: tuple[Span, ...]
    special: tuple[int, int] = (0, 0)
    first: int = 0
    pooled: bool = True
    part: float = 1.0
    final: bool = True
    prefix: int = 0
    slots: tuple[int, ...] = ()

    def with_shared_prefix(self, prefix: Sequence[int]) -> Segment:
        """This segment with its shared prefix noted, if it begins with these tokens and running them once pays."""
        begins = len(prefix) < len(self.ids) <= WORTH * len(prefix) and self.ids[: len(prefix)] == list(prefix)
        return replace(self, prefix=len(prefix)) if begins else self


@dataclass(frozen=True, slots=True)
class TokenizedText:
    """One text as the model reads it.

    Attributes:
        segments: one; for a chunked text the full pass and then its chunks.
        offsets: for each copy, the span of characters of each of its tokens (token indices if the text was given as
            ids); empty unless asked for.
        kept, total: the text's own tokens that were kept, and all of them, before any repetition.
    """

    segments: tuple[Segment, ...]
    offsets: tuple[tuple[Offset, ...], ...] = ()
    kept: int = 0
    total: int = 0

    def with_shared_prefix(self, prefix: Sequence[int]) -> TokenizedText:
        """This text, with the shared prefix noted in each segment that begins with it."""
        return replace(self, segments=tuple(s.with_shared_prefix(prefix) for s in self.segments))

    @property
    def size(self) -> int:
        """The number of tokens of all segments."""
        return sum(len(s.ids) for s in self.segments)
