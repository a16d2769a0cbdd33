"""Helpers of the word sense tasks: vectors of words in their texts, and the choice of the best score."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import WordNotFound
from ..text.words import Word, span_of
from .task import Array, Embedder

UNDECIDED = -1
"""The result of `winner` if no score is the largest."""


def word_rows(embedder: Embedder, texts: Sequence[str], words: Sequence[Word]) -> list[Array | None]:
    """Vectors (D,) of one word in each text; None if the text lacks the word or was truncated before its end.

    Args:
        embedder: an encoder.
        texts: the texts.
        words: one word per text.
    """
    spans = [_span(w, t) for w, t in zip(words, texts, strict=True)]
    present = [i for i, span in enumerate(spans) if span is not None]
    vectors = iter(_rows(embedder, [texts[i] for i in present], [spans[i] for i in present]))
    return [None if span is None else next(vectors) for span in spans]


def _span(word: Word, text: str) -> tuple[int, int] | None:
    try:
        return span_of(word, text)
    except WordNotFound:
        return None


def _rows(embedder: Embedder, texts: Sequence[str], spans: Sequence[Any]) -> list[Array | None]:
    """The vectors of spans; None for one that is truncated away, found by halving the list until one text is left."""
    if not texts:
        return []
    try:
        return list(embedder.encode_words(texts, spans))
    except WordNotFound:
        if len(texts) == 1:
            return [None]
        half = len(texts) // 2
        return _rows(embedder, texts[:half], spans[:half]) + _rows(embedder, texts[half:], spans[half:])


def winner(scores: Array) -> int:
    """The index of the largest of n scores; `UNDECIDED` if there is a tie, or a score is NaN or infinite.

    >>> winner(np.array([0.1, 0.7, 0.3])), winner(np.array([0.7, 0.7]))
    (1, -1)
    """
    if not np.isfinite(scores).all():
        return UNDECIDED
    best = int(scores.argmax())
    near = scores >= scores[best] - 1e-12 * max(1.0, abs(scores[best]))  # equal but for rounding in float64
    return best if near.sum() == 1 else UNDECIDED
