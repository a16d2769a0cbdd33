"""The tokens of words in their texts, by character offsets, in any script."""

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
        spans = [m.span() for m in re.finditer(re.escape(first), text)]
        if not -len(spans) <= number < len(spans):
            times = f"only {len(spans)} times" if spans else "not"
            raise WordNotFound(f"{first!r} (occurrence {number}, from 0) is {times} in {where} {_short(text)}")
        return spans[number]
    if not 0 <= first < number <= len(text):
        raise WordNotFound(f"the span {first}:{number} is not in {where} {_short(text)}, of length {len(text)}")
    return first, number


def tokens_of(span: tuple[int, int], tokens: TokenizedText, copy: int, what: str) -> list[int]:
    """The indices, in a copy of the text, of the tokens that overlap a span of characters.

    Args:
        span: half-open.
        tokens: of the text, with offsets.
        copy: which copy, from 1.
        what: the word, for an error.

    Raises:
        WordNotFound: the word has no token, or the text was truncated before its end.
    """
    offsets = tokens.offsets[copy - 1]
    indices = [i for i, (s, e) in enumerate(offsets) if s < span[1] and e > span[0]]
    end = max((e for _, e in offsets), default=0)
    if (span[1] > end and tokens.kept < tokens.total) or (span[1] > end and not indices):
        raise WordNotFound(f"{what} was cut off with the end of its text, after character {end}: raise max_length=")
    if not indices:
        raise WordNotFound(f"{what} leaves no token: the tokenizer drops all its characters")
    return indices


def _short(text: Text) -> str:
    return f"{text!r:.60}"


WordTokens: TypeAlias = list[list[list[int]]]
"""For each text, for each of its words, the indices of its tokens."""


def check_words(words: Sequence[Sequence[Word]], texts: Sequence[Text]) -> None:
    """Validate that every word is in its text.

    Raises:
        WordNotFound: one is not; the message names text and word.
    """
    for t, text in enumerate(texts):
        for word in words[t]:
            span_of(word, text, f"text {t}")


def find_tokens(
    words: Sequence[Sequence[Word]],
    texts: Sequence[Text],
    tokenized: Sequence[TokenizedText],
    copy: int,
    first: int = 0,
) -> WordTokens:
    """The tokens of every word of every text.

    Args:
        words: of each text.
        texts: as the user gave them.
        tokenized: the same texts, tokenized, with offsets.
        copy: which copy of the text, from 1.
        first: the number of the first text, for errors.

    Raises:
        WordNotFound: a word is not in its text, or was truncated; the message names text and word.
    """
    return [
        [tokens_of(span_of(w, text, f"text {t}"), tokens, copy, f"the word {w!r} of text {t}") for w in mine]
        for t, (text, tokens, mine) in enumerate(zip(texts, tokenized, words, strict=True), first)
    ]
