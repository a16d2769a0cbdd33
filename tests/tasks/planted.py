"""An embedder whose vectors are written down beforehand, so that a score can be worked out by hand."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from afterword.text.words import span_of

Array = np.ndarray[Any, np.dtype[np.floating[Any]]]


class Planted:
    """Gives each text its vector, and a word in it the same one; `asked` keeps what was asked for."""

    def __init__(self, vectors: Mapping[str, Sequence[float]]) -> None:
        self.vectors = vectors
        self.asked: list[list[tuple[str, Any]]] = []

    def encode(self, texts: Sequence[str], /, *, conditions: Sequence[str] | None = None) -> Array:
        return np.array([self.vectors[t] for t in texts], np.float32)

    def encode_words(self, texts: Sequence[str], words: Sequence[Any], /) -> Array:
        self.asked.append(list(zip(texts, words, strict=True)))
        for text, word in self.asked[-1]:
            span_of(word, text)
        return self.encode(texts)
