"""Words in their texts: which tokens spell them, by character offsets, in any script."""

from __future__ import annotations

import numbers
import re
from collections.abc import Sequence
from typing import TypeAlias

from ..errors import InputError, WordNotFound
from .layout import Text
from .segments import TokenizedText

Word: TypeAlias = str | tuple[str, int] | tuple[int, int]
"""A word: a string (its first occurrence), (string, n) for its n-th occurrence from 0 (-1 = the last), or a span of
characters (start, end). In a text of token ids, a span counts tokens."""


def span_of(word: Word, text: Text, where: str = "the text") -> tuple[int, int]:
    """The half-open span of characters that a word takes.

    Raises:
        WordNotFound: it is not there, or not so often.
        InputError: it is no word.

    >>> span_of(("bank", 1), "bank by bank")
    (8, 12)
    """
    if isinstance(word, str):
        word = (word, 0)
    pair = isinstance(word, tuple) and len(word) == 2 and isinstance(word[1], numbers.Integral)
    if not (pair and isinstance(word[0], str | numbers.Integral)):
        raise InputError(f"{word!r} is no word: give a string, (string, n), or a span (start, end)")
    first, number = word
    if isinstance(first, str):
        if not isinstance(text, str):
            raise InputError(
                f"{where} is a list of token ids: give the word {first!r} as a span of tokens (start, end)"
            )
        if not first:
            raise InputError("a word is an empty string")
        found = [m.span() for m in re.finditer(re.escape(first), text)]
        if not -len(found) <= number < len(found):
            times = f"only {len(found)} times" if found else "not"
            raise WordNotFound(f"{first!r} (occurrence {number}, from 0) is {times} in {where} {_short(text)}")
        return found[number]
    if not 0 <= first < number <= len(text):
        raise WordNotFound(f"the span {first}:{number} is not in {where} {_short(text)}, of length {len(text)}")
    return first, number


def tokens_of(span: tuple[int, int], writing: TokenizedText, copy: int, what: str) -> list[int]:
    """The tokens, counted in the copy, that overlap a span of characters.

    Args:
        span: half-open.
        writing: the text as written, with offsets.
        copy: which copy, from 1.
        what: how to name the word in an error.

    Raises:
        WordNotFound: no token spells it, or its text was cut before its end.
    """
    offsets = writing.offsets[copy - 1]
    found = [i for i, (s, e) in enumerate(offsets) if s < span[1] and e > span[0]]
    end = max((e for _, e in offsets), default=0)
    if (span[1] > end and writing.kept < writing.total) or (span[1] > end and not found):
        raise WordNotFound(f"{what} was cut off with the end of its text, after character {end}: raise max_length")
    if not found:
        raise WordNotFound(f"{what} leaves no token: the tokenizer drops all its characters")
    return found


def _short(text: Text) -> str:
    return f"{text!r:.60}"


Found: TypeAlias = list[list[list[int]]]


def check_words(words: Sequence[Sequence[Word]], texts: Sequence[Text]) -> None:
    """Whether every word is in its text.

    Raises:
        WordNotFound: one is not there; the message names text and word.
    """
    for t, text in enumerate(texts):
        for word in words[t]:
            span_of(word, text, f"text {t}")


def place(
    words: Sequence[Sequence[Word]], texts: Sequence[Text], writings: Sequence[TokenizedText], copy: int, first: int = 0
) -> Found:
    """The tokens of every word of every text.

    Args:
        words: of each text.
        texts: as they were given.
        writings: as they are read, with offsets.
        copy: which copy of the text is looked into, from 1.
        first: the number of the first text, for errors.

    Raises:
        WordNotFound: one is not there, or was cut off; the message names text and word.
    """
    return [
        [tokens_of(span_of(w, text, f"text {t}"), writing, copy, f"the word {w!r} of text {t}") for w in mine]
        for t, (text, writing, mine) in enumerate(zip(texts, writings, words, strict=True), first)
    ]
