"""Split texts into chunks by character spans, at sentences, paragraphs or numbers of tokens; the tokens of each."""

from __future__ import annotations

import numbers
import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise
from unicodedata import category

from ..errors import InputError, WordNotFound
from .layout import Text
from .segments import Span
from .tokenizer import Offset

CLOSING = "[\"'”’»›)\\]}」』）】》〉｣〕\ufe0f]*"
LINE = "(?>\r\n|[\n\r\x85\u2028\u2029])"
BLANK_LINE = rf"{LINE}(?:[^\S\n\r\x85\u2028\u2029]*{LINE})+"
SENTENCE = (
    rf"[.!?…]+{CLOSING}(?=\s|$)|[!?]+{CLOSING}(?=[\u3040-\u30ff\u3400-\u9fff])|{BLANK_LINE}"
    rf"|(?:[。！？｡؟۔।॥։።។။]|．(?!\d))[。！？｡…]*{CLOSING}"
)
FLAGS = "".join(map(chr, range(0x1F1E6, 0x1F200)))


def check_spans(spans: Sequence[object], text: Text, where: str) -> list[Span]:
    """Validate spans: half-open, in order, without overlap, none of them blank.

    Raises:
        InputError: they are not; the message names text and span.

    >>> check_spans([(0, 2), (3, 5)], "ab cd", "text 0")
    [(0, 2), (3, 5)]
    """
    found: list[Span] = []
    for span in spans:
        pair = list(span) if isinstance(span, list | tuple) else []
        if len(pair) != 2 or not all(isinstance(at, numbers.Integral) and not isinstance(at, bool) for at in pair):
            raise InputError(f"{span!r:.60} is no span of {where}: give two whole numbers, (start, end)")
        start, end = map(int, pair)
        wrong = f"is outside: {where} ends at {len(text)}" if start < 0 or end > len(text) else ""
        wrong = wrong or ("is empty: its end must be greater than its start" if start >= end else "")
        if not wrong and found and start < found[-1][1]:
            wrong = f"begins before {found[-1][0]}:{found[-1][1]} ends: give spans in order, without overlap"
        if not wrong and isinstance(text, str) and not text[start:end].strip():
            wrong = "is blank: leave it out"
        if wrong:
            raise InputError(f"the span {start}:{end} of {where} {wrong}")
        found.append((start, end))
    return found


def split(
    text: Text, offsets: Sequence[Offset], unit: str | None, tokens: int | None, most: int | None, where: str,
    shared: int = 0,
) -> list[Span]:  # fmt: skip
    """Spans that cover a text. A chunk begins with a visible character that begins a token, never inside a letter.

    Args:
        text: the text, and ``offsets`` of its tokens.
        unit: "sentences", "paragraphs" (to a blank line; where there is none, to the end of a line), or None.
        tokens: join units to chunks of at most so many tokens, and split longer ones; None = each unit is a chunk.
        most: split longer units in any case.
        where: names the text in errors.
        shared: tokens that a chunk of ``tokens`` has in common with the one before it, where no letter is divided.

    Raises:
        InputError: a list of token ids has no sentences.
        WordNotFound: the text has no token.
    """
    if unit is not None and not isinstance(text, str):
        raise InputError(f"{where} is a list of token ids, which has no {unit}: give spans of tokens, or tokens=")
    starts = list(accumulate((_visible(text, *offset) for offset in offsets), max))
    seen = [i for i, (s, e) in enumerate(offsets) if s < e and not (isinstance(text, str) and text[s:e].isspace())]
    if not seen:
        raise WordNotFound(f"{where} leaves no token: it is blank, or the tokenizer drops all its characters")
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
    last one.

    Args:
        fine: whether a chunk may begin at each token; the last entry is the end of the text.
    """
    last, found = len(fine) - 1, [(0, 0)]
    while found[-1][1] < last:
        before, after = found[-1]
        end = fine.index(True, after + 1)  # the nearest end; a chunk that begins too early does not reach it
        begins = [k for k in range(max(before + 1, end - limit), after + 1) if fine[k]] or [after]
        a = max((k for k in begins if k <= after - shared), default=begins[0])
        found.append((a, max((k for k in range(end, min(a + limit, last) + 1) if fine[k]), default=end)))
    return found[1:]


def tokens_of_spans(spans: Sequence[Span], offsets: Sequence[Offset], text: Text) -> list[list[int]]:
    """The tokens of each span: those whose first visible character it holds, so that no token is in two spans."""
    found: list[list[int]] = [[] for _ in spans]
    begins = [start for start, _ in spans]
    for i, (start, end) in enumerate(offsets):
        at = _visible(text, start, end)
        k = bisect_right(begins, at) - 1
        if start < end and k >= 0 and at < spans[k][1]:
            found[k].append(i)
    return found


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
    """Whether a chunk may begin here: at no blank, combining mark or joiner, nor inside an emoji or a Korean letter."""
    if not isinstance(text, str):
        return True
    before, this = text[at - 1 : at], text[at : at + 1]
    if not this.strip() or category(this) in ("Mn", "Mc", "Me", "Cf") or before == "\u200d":
        return False
    if "\u1160" <= this <= "\u11ff" or "\u1100" <= before <= "\u115f" or "\U0001f3fb" <= this <= "\U0001f3ff":
        return False
    return this not in FLAGS or (at - len(text[:at].rstrip(FLAGS))) % 2 == 0
