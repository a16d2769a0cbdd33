"""Write texts into a layout: join token ids, or tokenize template and text as one string; truncate; find the copies."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from types import NoneType
from typing import TYPE_CHECKING

from ..errors import InputError, MethodError
from .chat import as_text
from .segments import Segment, Span, TokenizedText
from .tokenizer import Offset, Spelled, Tokenizer

if TYPE_CHECKING:
    from .layout import Layout

Parts = Sequence[str | None]
"""Literals in order, with None for each copy of the text."""

PLACEHOLDER = "<PST>"
"""A placeholder in a template: a token that a state is copied to while the model runs (Token Prepending)."""


class Placeholder(str):
    """A placeholder as the tokenizer sees it: ``<PST>`` if the vocabulary has this token, otherwise a star."""


class Writer:
    """Turns texts into tokens, given a layout, a tokenizer, its special tokens and a maximum length."""

    def __init__(
        self, layout: Layout, tokenizer: Tokenizer, prefix: list[int], suffix: list[int], length: int | None,
        offsets: bool,
    ) -> None:  # fmt: skip
        self.layout, self.tokenizer, self.length, self.offsets = layout, tokenizer, length, offsets
        self.prefix, self.suffix = prefix, suffix
        self.special = (len(prefix), len(suffix))
        self._pieces: dict[tuple[str | None, ...], list[list[int] | None]] = {}

    def shared_prefix(self, parts: Parts) -> list[int]:
        """Return the tokens before the text, except those that the text's first letter may change."""
        front = (parts[0] or "").split("\0")[0]
        if not front:
            return []
        bare, followed = self.tokenizer.ids([front, front + "a"])
        same = next((i for i, token in enumerate(bare) if [token] != followed[i : i + 1]), len(bare))
        return self.prefix + bare[:same]

    def pieces(self, parts: Parts) -> list[list[int] | None]:
        """Return the token ids of each literal, tokenized by itself."""
        key = tuple(parts)
        if key not in self._pieces:
            ids = iter(self.tokenizer.ids([p for p in parts if p is not None]) if any(parts) else [])
            self._pieces[key] = [None if p is None else next(ids) for p in parts]
        return self._pieces[key]

    def separate(self, texts: Sequence[str], parts: Sequence[Parts]) -> list[TokenizedText]:
        """Tokenize texts by themselves, with offsets only where they are needed."""
        spell = self.tokenizer.spell if self.offsets else lambda t: [Spelled(ids, []) for ids in self.tokenizer.ids(t)]
        return [self.join(s, self.pieces(p), p) for s, p in zip(spell(texts), parts, strict=True)]

    def joint(self, texts: Sequence[str], parts: Sequence[Parts]) -> list[TokenizedText]:
        """Tokenize each text together with the template around it, all in one call."""
        first = self.layout.join == "first"
        if first:
            parts = [one_copy(p) for p in parts]
        strings = ["".join(text if q is None else q for q in p) for text, p in zip(texts, parts, strict=True)]
        spelled = self.tokenizer.spell(strings)
        if self.layout.chat is True:
            ranges = map(ranges_of, texts, parts)
            spelled = [as_text(*each, self.tokenizer) for each in zip(spelled, strings, ranges, strict=True)]
        write = self._repeated if first else self._together
        return [write(t, p, s) for t, p, s in zip(texts, parts, spelled, strict=True)]

    def join(self, text: Spelled, pieces: Sequence[list[int] | None], parts: Parts = ()) -> TokenizedText:
        """Concatenate token ids: a piece holds the ids of a literal (of `parts`), or is None for a copy of the text."""
        layout, length, suffix = self.layout, self.length, self.suffix
        if layout.chunk is not None:
            return self._chunks(text, layout.chunk)
        fixed, copies = sum(self.special) + sum(len(p) for p in pieces if p), pieces.count(None)
        ids, kept = text.ids, len(text.ids)
        if length is not None and layout.truncate == "before":
            kept = min(kept, room_of(length - fixed, copies, length))
            ids = ids[:kept]
        body, spans, marks = list(self.prefix), [], []
        for piece, part in zip_longest(pieces, parts):
            added = ids if piece is None else piece
            if piece is None:
                spans.append((len(body), len(body) + len(ids)))
            if isinstance(part, Placeholder):
                marks.append((len(body), len(body) + len(added)))
            body += added
        if length is not None and len(body) + len(suffix) > length:
            if layout.truncate == "whole":
                suffix = suffix[: max(length - len(body), 0)]
            body = body[: length - len(suffix)]
            spans = [(min(a, len(body)), min(b, len(body))) for a, b in spans]
            kept = spans[0][1] - spans[0][0]
        slots = placed(marks, spans, len(body))
        segment = Segment(body + suffix, tuple(spans), (len(self.prefix), len(suffix)), slots=slots)
        offsets = tuple(tuple(text.offsets[: b - a]) for a, b in spans) if self.offsets else ()
        return TokenizedText((segment,), offsets, kept, len(text.ids))

    def _repeated(self, text: str, parts: Parts, spelled: Spelled) -> TokenizedText:
        """Repeat the ids of the copy of the text in the string."""
        start, end = ranges_of(text, parts)[0]
        a, b = overlapping(spelled.offsets, (start, end))
        copy = Spelled(spelled.ids[a:b], [(s - start, e - start) for s, e in spelled.offsets[a:b]])
        middle = self.pieces([None, self.layout.separator or None])[1:] if self.layout.separator else []
        copies: list[list[int] | None] = [None, *[*middle, None] * (self.layout.copies - 1)]
        return self.join(copy, [spelled.ids[:a], *copies, spelled.ids[b:]])

    def _together(self, text: str, parts: Parts, spelled: Spelled) -> TokenizedText:
        """Use the tokens of the string; character offsets tell which of them belong to a copy of the text.

        If there are too many tokens, the text is cut and the string is tokenized again.
        """
        layout, prefix, suffix = self.layout, self.prefix, self.suffix
        room = None if self.length is None else self.length - sum(self.special)
        cut, total = text, None
        last = parts[-1] is None and parts.count(None) == 1  # its last tokens can be dropped: nothing follows
        while True:
            ranges = ranges_of(cut, parts)
            spans = [overlapping(spelled.offsets, r) for r in ranges]
            total = total if total is not None else spans[0][1] - spans[0][0]
            over = 0 if room is None else len(spelled.ids) - room
            if over <= 0 or layout.truncate != "before" or (last and room is not None and spans[0][0] < room):
                break
            if not cut:
                n = len(spelled.ids)
                raise InputError(f"max_length={self.length} leaves {room} tokens, but the template has {n}: raise it")
            keep = max(spans[0][1] - spans[0][0] - -(-over // len(spans)), 0)
            end = spelled.offsets[spans[0][0] + keep][0] if spans[0][0] + keep < len(spelled.ids) else ranges[0][0]
            cut = cut[: min(max(end - ranges[0][0], 0), len(cut) - 1)]
            string = "".join(cut if p is None else p for p in parts)
            spelled = self.tokenizer.spell([string])[0]
            if layout.chat is True:
                spelled = as_text(spelled, string, ranges_of(cut, parts), self.tokenizer)
        if room is not None and over > 0 and layout.truncate == "whole":
            suffix = suffix[: max(room + len(suffix) - len(spelled.ids), 0)]
            room = self.length - len(prefix) - len(suffix) if self.length is not None else None
        ids = prefix + spelled.ids[:room] + suffix
        end = len(ids) - len(suffix)
        shifted = [(min(a + len(prefix), end), min(b + len(prefix), end)) for a, b in spans]
        marks = [overlapping(spelled.offsets, r) for r in ranges_of(cut, parts, Placeholder)]
        slots = placed([(a + len(prefix), b + len(prefix)) for a, b in marks], shifted, end)
        segment = Segment(ids, tuple(shifted), (len(prefix), len(suffix)), slots=slots)
        offsets = [
            tuple((s - r[0], e - r[0]) for s, e in spelled.offsets[a - len(prefix) : b - len(prefix)])
            for (a, b), r in zip(shifted, ranges, strict=True)
            if self.offsets
        ]
        return TokenizedText((segment,), tuple(offsets), shifted[0][1] - shifted[0][0], total)

    def _chunks(self, text: Spelled, size: int) -> TokenizedText:
        """Write the full pass over the text, then each chunk, repeated by itself (ReBA, section 6)."""
        copies, prefix, suffix, kept = self.layout.copies, self.prefix, self.suffix, len(text.ids)
        if self.length is not None:
            room = self.length - sum(self.special)
            kept = min(kept, room_of(room, 1, self.length))
            size = min(size, room_of(room, copies, self.length))
        start = len(prefix)
        full = Segment(prefix + text.ids[:kept] + suffix, ((start, start + kept),), self.special, pooled=False)
        chunks = []
        for first in range(0, kept, size):
            ids = text.ids[first : min(first + size, kept)]
            spans = [(start + c * len(ids), start + (c + 1) * len(ids)) for c in range(copies)]
            body, part, final = prefix + ids * copies + suffix, len(ids) / kept, first + size >= kept
            chunks.append(Segment(body, tuple(spans), self.special, first, part=part, final=final))
        offsets = (tuple(text.offsets[:kept]),) * copies if self.offsets else ()
        return TokenizedText((full, *chunks), offsets, kept, len(text.ids))


def one_copy(parts: Parts) -> Parts:
    """Reduce the parts to one copy of the text, without separators."""
    last = len(parts) - 1 - parts[::-1].index(None)
    return [*parts[: parts.index(None)], None, *parts[last + 1 :]]


def ranges_of(text: str, parts: Parts, of: type = NoneType) -> list[Span]:
    """Find the span of characters of each copy, or each placeholder, in the string of all parts."""
    ranges, at = [], 0
    for part in parts:
        size = len(text if part is None else part)
        if isinstance(part, of):
            ranges.append((at, at + size))
        at += size
    return ranges


def room_of(tokens: int, copies: int, max_length: int) -> int:
    """Return the maximum number of tokens per copy."""
    if tokens < copies:
        raise InputError(f"max_length={max_length} leaves no room for {copies} copies of the text: raise it")
    return tokens // copies


def overlapping(offsets: Sequence[Offset], characters: Span) -> Span:
    """Find the half-open span of tokens that overlap a range of characters."""
    start, end = characters
    first = next((i for i, (s, e) in enumerate(offsets) if s < end and e > start), None)
    if first is None:
        return 0, 0
    return first, next(i for i in range(len(offsets), 0, -1) if offsets[i - 1][0] < end and offsets[i - 1][1] > start)


def with_placeholders(parts: list[str | None], tokenizer: Tokenizer) -> list[str | None]:
    """Split each placeholder of a template's literals into a separate part."""
    if not any(p and PLACEHOLDER in p for p in parts):
        return parts
    token = tokenizer.hf.convert_tokens_to_ids(PLACEHOLDER)
    written = Placeholder(PLACEHOLDER if token is not None and tokenizer.tokens([token]) == [PLACEHOLDER] else "*")
    pieces = [piece for p in parts for piece in ([None] if p is None else re.split(f"({PLACEHOLDER})", p))]
    return [written if piece == PLACEHOLDER else piece for piece in pieces if piece != ""]


def placed(tokens: Iterable[Span], copies: Sequence[Span], end: int) -> tuple[int, ...]:
    """Return the index of each placeholder's last token, in an input of ``end`` tokens.

    Raises:
        MethodError: a placeholder shares a token with the text.
        InputError: a placeholder was cut off.
    """
    spans = list(tokens)
    if any(first == stop or any(a < stop <= b for a, b in copies) for first, stop in spans):
        raise MethodError(f"{PLACEHOLDER} shares a token with the text: put a space between it and {{text}}")
    if any(stop > end for _, stop in spans):
        raise InputError(f"the template's {PLACEHOLDER} was cut off: raise max_length")
    return tuple(stop - 1 for _, stop in spans)
