"""Spans of a text and their tokens: words, and chunks at sentences, paragraphs or numbers of tokens, in any script."""

from __future__ import annotations

import numbers
import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import TypeAlias
from unicodedata import category

from ..errors import InputError, WordNotFound
from .layout import Text
from .segments import Span, TokenizedText
from .tokenizer import Offset

Word: TypeAlias = str | tuple[str, int] | tuple[int, int]
"""A word: a string (its first occurrence), (string, n) for its n-th occurrence from 0 (-1 = the last), or a span of
characters (start, end). In a text of token ids, a span counts tokens."""

WordTokens: TypeAlias = list[list[list[int]]]
"""For each text, for each of its words, the indices of its tokens."""

CLOSING = "[\"'”’»›)\\]}」』）】》〉｣〕\ufe0f]*"
LINE = "(?>\r\n|[\n\r\x85\u2028\u2029])"
BLANK_LINE = rf"{LINE}(?:[^\S\n\r\x85\u2028\u2029]*{LINE})+"
SENTENCE = (
    rf"[.!?…]+{CLOSING}(?=\s|$)|[!?]+{CLOSING}(?=[\u3040-\u30ff\u3400-\u9fff])|{BLANK_LINE}"
    rf"|(?:[。！？｡؟۔।॥։።။។]|．(?!\d))[。！？｡…]*{CLOSING}"
)
FLAGS = "".join(map(chr, range(0x1F1E6, 0x1F200)))


def span_of(word: Word, text: Text, where: str = "the text") -> Span:
    """The half-open span of characters of a word.

    Raises:
        WordNotFound: the text does not contain it, or not often enough.
        InputError: it is not a valid word.

    >>> span_of(("bank", 1), "bank by bank")
    (8, 12)
    """
    if isinstance(word, str):
        word = (word, 0)
    pair = isinstance(word, tuple) and len(word) == 2 and isinstance(word[1], numbers.Integral)
    if not (pair and isinstance(word[0], str | numbers.Integral)) or word[0] == "":
        raise InputError(f"{word!r} is not a word: pass a string, (string, n), or a span (start, end)")
    first, number = word
    if isinstance(first, str):
        if not isinstance(text, str):
            raise InputError(f"{where} is a list of token ids: pass {first!r} as a span of tokens (start, end)")
        spans = [m.span() for m in re.finditer(re.escape(first), text)]
        if not -len(spans) <= number < len(spans):
            times = f"only {len(spans)} times" if spans else "not"
            raise WordNotFound(f"{first!r} (occurrence {number}, from 0) is {times} in {where} {text!r:.60}")
        return spans[number]
    if not 0 <= first < number <= len(text):
        raise WordNotFound(f"the span {first}:{number} is not in {where} {text!r:.60}, of length {len(text)}")
    return first, number


def tokens_of(span: Span, tokens: TokenizedText, copy: int, what: str) -> list[int]:
    """The indices, in a copy of the text (from 1), of the tokens that overlap a span of characters.

    Raises:
        WordNotFound: the word, named ``what``, has no token, or the text was truncated before its end.
    """
    offsets = tokens.offsets[copy - 1]
    indices = [i for i, (s, e) in enumerate(offsets) if s < span[1] and e > span[0]]
    end = max((e for _, e in offsets), default=0)
    if span[1] > end and (tokens.kept < tokens.total or not indices):
        raise WordNotFound(f"{what} was cut off with the end of its text, after character {end}: raise max_length")
    if not indices:
        raise WordNotFound(f"{what} has no token: the tokenizer drops all its characters")
    return indices


def check_words(words: Sequence[Sequence[Word]], texts: Sequence[Text]) -> None:
    """Validate that every word is in its text; raises WordNotFound, which names text and word."""
    for t, text in enumerate(texts):
        for word in words[t]:
            span_of(word, text, f"text {t}")


def find_tokens(
    words: Sequence[Sequence[Word]], texts: Sequence[Text], tokenized: Sequence[TokenizedText], copy: int,
    first: int = 0,
) -> WordTokens:  # fmt: skip
    """The tokens of every word of every text, in a copy of the text (from 1); errors number texts from ``first``."""
    return [
        [tokens_of(span_of(w, text, f"text {t}"), tokens, copy, f"the word {w!r} of text {t}") for w in mine]
        for t, (text, tokens, mine) in enumerate(zip(texts, tokenized, words, strict=True), first)
    ]


def check_spans(spans: Sequence[object], text: Text, where: str) -> list[Span]:
    """Validate spans: half-open, in order, without overlap, none of them blank; an error names text and span."""
    checked: list[Span] = []
    for span in spans:
        pair = list(span) if isinstance(span, list | tuple) else []
        if len(pair) != 2 or not all(isinstance(at, numbers.Integral) for at in pair):
            raise InputError(f"{span!r:.60} is not a span of {where}: pass two whole numbers, (start, end)")
        start, end = map(int, pair)
        if not 0 <= start < end <= len(text):
            raise InputError(f"the span {start}:{end} is empty, or outside {where}, which ends at {len(text)}")
        if checked and start < checked[-1][1]:
            raise InputError(f"the span {start}:{end} of {where} overlaps the one before: pass spans in order")
        if isinstance(text, str) and not text[start:end].strip():
            raise InputError(f"the span {start}:{end} of {where} is blank: remove it")
        checked.append((start, end))
    return checked


def split(
    text: Text, offsets: Sequence[Offset], unit: str | None, tokens: int | None, most: int | None, where: str,
    shared: int = 0,
) -> list[Span]:  # fmt: skip
    """Split a text into spans. Each begins with a visible character that begins a token, and never inside a letter.

    Args:
        text: the text, and ``offsets`` of its tokens.
        unit: "sentences", "paragraphs" (to a blank line; where there is none, to the end of a line), or None.
        tokens: join units to chunks of at most this many tokens, and split longer ones; None = each unit is a chunk.
        most: split longer units in any case.
        where: names the text in errors.
        shared: tokens that a chunk of ``tokens`` has in common with the one before it, where no letter is divided.

    Raises:
        InputError: a list of token ids has no sentences.
        WordNotFound: the text has no token.
    """
    if unit is not None and not isinstance(text, str):
        raise InputError(f"{where} is a list of token ids, which has no {unit}: pass spans of tokens, or tokens=")
    starts = list(accumulate((_visible(text, *offset) for offset in offsets), max))
    seen = [i for i, (s, e) in enumerate(offsets) if s < e and not (isinstance(text, str) and text[s:e].isspace())]
    if not seen:
        raise WordNotFound(f"{where} has no token: it is blank, or the tokenizer drops all its characters")
    places = zip(pairwise(starts), accumulate((end for _, end in offsets), max), strict=False)
    fine = [False, *(at > last and at >= end and _divides(text, at) for (last, at), end in places), True]
    fine[: seen[0] + 1] = [False] * (seen[0] + 1)
    units = [0, *(fine.index(True, bisect_left(starts, border)) for border in _borders(text, unit)), len(starts)]
    limit, cuts = min(tokens or len(starts), most or len(starts)), [0]
    if shared:
        ends = [*starts, len(text)]
        return [(ends[a] if a else 0, ends[b]) for a, b in _sharing(fine, limit, shared)]
    for a, b in pairwise(units):
        if a > cuts[-1] and (tokens is None or b - cuts[-1] > limit):
            cuts.append(a)
        while b - cuts[-1] > limit:
            a = cuts[-1]
            cuts.append(next((k for k in range(a + limit, a, -1) if fine[k]), None) or fine.index(True, a + limit))
    return list(pairwise([0, *(starts[k] for k in cuts[1:] if k < len(starts)), len(text)]))


def _sharing(fine: Sequence[bool], limit: int, shared: int) -> list[Span]:
    """Chunks (a, b) of at most `limit` tokens, each beginning `shared` tokens before the last one's end.

    Where a chunk may not begin there, it begins earlier, and shares more; or later, if it would end no later than the
    last one. ``fine`` says of each token whether a chunk may begin at it; its last entry is the end of the text.
    """
    last, chunks = len(fine) - 1, [(0, 0)]
    while chunks[-1][1] < last:
        before, after = chunks[-1]
        end = fine.index(True, after + 1)  # the nearest end; a chunk that begins too early does not reach it
        begins = [k for k in range(max(before + 1, end - limit), after + 1) if fine[k]] or [after]
        a = max((k for k in begins if k <= after - shared), default=begins[0])
        chunks.append((a, max((k for k in range(end, min(a + limit, last) + 1) if fine[k]), default=end)))
    return chunks[1:]


def tokens_of_spans(spans: Sequence[Span], offsets: Sequence[Offset], text: Text) -> list[list[int]]:
    """The tokens of each span; a token belongs to the span that holds its first visible character."""
    tokens: list[list[int]] = [[] for _ in spans]
    begins = [start for start, _ in spans]
    for i, (start, end) in enumerate(offsets):
        at = _visible(text, start, end)
        k = bisect_right(begins, at) - 1
        if start < end and k >= 0 and at < spans[k][1]:
            tokens[k].append(i)
    return tokens


def _borders(text: Text, unit: str | None) -> list[int]:
    if unit is None or not isinstance(text, str):
        return []
    lines = BLANK_LINE if re.search(BLANK_LINE, text) else LINE
    return [match.end() for match in re.finditer(SENTENCE if unit == "sentences" else lines, text)]


def _visible(text: Text, start: int, end: int) -> int:
    """The first character of a span that is not blank; the first one, if all are."""
    part = text[start:end] if isinstance(text, str) else ""
    return end - len(part.lstrip()) if part.strip() else start


def _divides(text: Text, at: int) -> bool:
    """Whether a chunk may begin here: not at a blank or combining mark, nor inside an emoji or a Korean syllable."""
    if not isinstance(text, str):
        return True
    before, this = text[at - 1 : at], text[at : at + 1]
    if not this.strip() or category(this) in ("Mn", "Mc", "Me", "Cf") or before == "\u200d":
        return False
    if "\u1160" <= this <= "\u11ff" or "\u1100" <= before <= "\u115f" or "\U0001f3fb" <= this <= "\U0001f3ff":
        return False
    return this not in FLAGS or (at - len(text[:at].rstrip(FLAGS))) % 2 == 0
