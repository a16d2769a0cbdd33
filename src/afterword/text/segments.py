"""A text as the model reads it: one or more *segments*, whose tokens attend to each other.

Each copy of the text in a segment is a half-open span of token indices; tokens outside all spans belong to the
template or are special tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from .tokenizer import Offset

Span = tuple[int, int]

SPECIAL = -1
"""The number of special tokens among copies: copies count from 1, tokens of the template are 0."""

WORTH = 16
"""A shared prefix runs once for texts of at most this many times its length. Longer texts gain nothing measurable from
it, and they would need an attention mask, whose size grows with the square of their length."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Tokens that attend to each other.

    Attributes:
        ids: token ids (n,).
        copies: the half-open span of token indices of each copy of the text; empty where truncation cut it off.
        special: the number of special tokens before and after all others.
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


@dataclass(frozen=True, slots=True)
class TokenizedText:
    """One text as the model reads it.

    Attributes:
        segments: one; for a chunked text the full pass and then its chunks.
        offsets: for each copy, the span of characters of each of its tokens (token indices if the text was passed as
            ids); empty unless asked for.
        kept, total: the number of the text's tokens that were kept, and of all, before any repetition.
    """

    segments: tuple[Segment, ...]
    offsets: tuple[tuple[Offset, ...], ...] = ()
    kept: int = 0
    total: int = 0

    def with_shared_prefix(self, prefix: Sequence[int]) -> TokenizedText:
        """This text, with the shared prefix noted in each segment that begins with it, if running it once pays."""
        start, size = list(prefix), len(prefix)
        pays = [size < len(s.ids) <= WORTH * size and s.ids[:size] == start for s in self.segments]
        segments = zip(self.segments, pays, strict=True)
        return replace(self, segments=tuple(replace(s, prefix=size) if noted else s for s, noted in segments))

    @property
    def size(self) -> int:
        """The number of tokens of all segments."""
        return sum(len(s.ids) for s in self.segments)
