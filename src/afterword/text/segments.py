"""A text as the model reads it: one or more *segments*, runs of tokens that attend to each other.

In a segment every copy of the text is a half-open span of token indices; what lies outside the spans is template or
special.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from .tokenizer import Offset

Span = tuple[int, int]

WORTH = 16
"""A lead is run once for texts of at most so many times its length. Longer ones gain nothing that can be measured, and
what they attend to must be told by a mask, which grows with the square of their length."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Tokens that attend to each other.

    Attributes:
        ids: token ids (n,).
        copies: per copy of the text, its half-open span of token indices; empty where truncation cut it off.
        special: how many special tokens stand in front of and behind the rest.
        first: index, in the text, of the first token of the copies (not 0 in a chunk).
        pooled: whether the text's vector reads this segment (a chunked text's full pass only lends its states).
        part: the share of the text that its copies hold (less than 1 in a chunk).
        final: whether the text ends here.
        lead: so many tokens at its front, fewer than it has, are those of every other text that has a lead.
    """

    ids: list[int]
    copies: tuple[Span, ...]
    special: tuple[int, int] = (0, 0)
    first: int = 0
    pooled: bool = True
    part: float = 1.0
    final: bool = True
    prefix: int = 0

    def with_shared_prefix(self, by: Sequence[int]) -> Segment:
        """This segment, with the lead if it begins so, goes on, and saves enough by it."""
        begins = len(by) < len(self.ids) <= WORTH * len(by) and self.ids[: len(by)] == list(by)
        return replace(self, prefix=len(by)) if begins else self


@dataclass(frozen=True, slots=True)
class TokenizedText:
    """One text as the model reads it.

    Attributes:
        segments: one; for a chunked text the full pass and then its chunks.
        offsets: per copy, per token of the copy, the characters it stands for (token indices where the text
            was given as ids); empty unless asked for.
        kept, total: content tokens kept and there in all, before any repetition.
    """

    segments: tuple[Segment, ...]
    offsets: tuple[tuple[Offset, ...], ...] = ()
    kept: int = 0
    total: int = 0

    def with_shared_prefix(self, prefix: Sequence[int]) -> TokenizedText:
        """This writing, each segment with the lead if it begins so."""
        return replace(self, segments=tuple(s.with_shared_prefix(prefix) for s in self.segments))

    @property
    def size(self) -> int:
        """Tokens of all segments."""
        return sum(len(s.ids) for s in self.segments)
