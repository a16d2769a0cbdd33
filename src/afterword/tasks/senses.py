"""What the tasks on word sense share: vectors of words in their texts, and one choice among several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import WordNotFound
from ..text.words import Word, span_of
from .task import Array, Embedder

UNDECIDED = -1
"""What `winner` gives where nothing stands out."""


def word_rows(embedder: Embedder, texts: Sequence[str], words: Sequence[Word]) -> list[Array | None]:
    """Vectors (D,) of one word in each text; None where the text lacks it or was cut before its end.

    Args:
        embedder: makes vectors.
        texts: any.
        words: one per text.
    """
    spans = [_span(w, t) for w, t in zip(words, texts, strict=True)]
    there = [i for i, span in enumerate(spans) if span is not None]
    made = iter(_rows(embedder, [texts[i] for i in there], [spans[i] for i in there]))
    return [None if span is None else next(made) for span in spans]


def _span(word: Word, text: str) -> tuple[int, int] | None:
    try:
        return span_of(word, text)
    except WordNotFound:
        return None


def _rows(embedder: Embedder, texts: Sequence[str], spans: Sequence[Any]) -> list[Array | None]:
    """The vectors of spans that are in their texts; one may still be cut off, which is said before any is embedded."""
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
    """The index of the largest of n scores; `UNDECIDED` where it shares its place, or a score is not finite.

    >>> winner(np.array([0.1, 0.7, 0.3])), winner(np.array([0.7, 0.7]))
    (1, -1)
    """
    if not np.isfinite(scores).all():
        return UNDECIDED
    best = int(scores.argmax())
    near = scores >= scores[best] - 1e-12 * max(1.0, abs(scores[best]))  # equal but for rounding in float64
    return best if near.sum() == 1 else UNDECIDED
