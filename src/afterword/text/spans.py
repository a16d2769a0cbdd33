"""Spans of characters and of tokens: where the copies of a text and the placeholders stand in the whole input."""

from __future__ import annotations

from collections.abc import Sequence
from types import NoneType

from ..errors import InputError
from .segments import Span
from .tokenizer import Offset

Parts = Sequence[str | None]
"""Literals in order, with None for each copy of the text."""


def one_copy(parts: Parts) -> Parts:
    """The parts with one copy of the text, without the separators."""
    last = len(parts) - 1 - parts[::-1].index(None)
    return [*parts[: parts.index(None)], None, *parts[last + 1 :]]


def ranges_of(text: str, parts: Parts, of: type = NoneType) -> list[Span]:
    """The span of characters in the whole string of each copy, or of each placeholder."""
    ranges, at = [], 0
    for part in parts:
        size = len(text if part is None else part)
        if isinstance(part, of):
            ranges.append((at, at + size))
        at += size
    return ranges


def room_of(tokens: int, copies: int, max_length: int) -> int:
    """The most tokens that each copy may have."""
    if tokens < copies:
        raise InputError(f"max_length={max_length} leaves no room for {copies} copies of the text beside its template")
    return tokens // copies


def tokens_of(offsets: Sequence[Offset], characters: Span) -> Span:
    """The half-open span of tokens that overlap a range of characters."""
    start, end = characters
    first = next((i for i, (s, e) in enumerate(offsets) if s < end and e > start), None)
    if first is None:
        return 0, 0
    return first, next(i for i in range(len(offsets), 0, -1) if offsets[i - 1][0] < end and offsets[i - 1][1] > start)
