"""The vectors of a task's texts in memory, so that each text runs once for all encoders that share a forward pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..post import Post
from .task import Embedder

Array = NDArray[np.floating[Any]]
OnProgress = Callable[[int], object]
"""Called with the number of texts that were just finished."""
EmbedTexts = Callable[[list[str], OnProgress], Mapping[str, Array]]
"""From texts to their vectors (n, D), by the name of the method."""


@dataclass
class VectorCache:
    """The vectors of methods that share a forward pass, before post-processing.

    Args:
        names: names of the methods.
        run: computes their vectors.
    """

    names: tuple[str, ...]
    run: EmbedTexts
    _vectors: dict[str, dict[str, Array]] = field(default_factory=dict)  # by text, then by method

    def missing(self, texts: Sequence[str]) -> list[str]:
        """The texts that are not in the cache, without duplicates."""
        return [t for t in dict.fromkeys(texts) if t not in self._vectors]

    def add(self, texts: Sequence[str], on_progress: OnProgress = lambda _: None) -> None:
        """Embed the texts that are not in the cache."""
        if wanted := self.missing(texts):
            found = self.run(wanted, on_progress)
            self._vectors |= {text: {name: rows[i] for name, rows in found.items()} for i, text in enumerate(wanted)}

    def keep(self, texts: Sequence[str]) -> None:
        """Forget all texts but these."""
        self._vectors = {text: self._vectors[text] for text in texts if text in self._vectors}

    def vectors(self, name: str, texts: Sequence[str]) -> Array:
        """The vectors (n, D) of texts by one of the methods; texts that are not in the cache are embedded."""
        self.add(texts)
        return np.stack([self._vectors[text][name] for text in texts])


@dataclass(frozen=True)
class CachedEmbedder:
    """An embedder that takes sentence vectors from a `VectorCache`.

    Args:
        embedder: the encoder, which computes word vectors, and vectors with conditions.
        cache: holds sentence vectors before post-processing.
        name: name of the method in the cache.
        post: post-processing steps, applied to the cached vectors.
    """

    embedder: Embedder
    cache: VectorCache
    name: str
    post: tuple[Post, ...] = ()

    @property
    def prompts(self) -> Mapping[str, str]:
        """The embedder's prompts by name; empty if it has none."""
        return getattr(self.embedder, "prompts", None) or {}

    @property
    def similarity_fn_name(self) -> str:
        """The name of the embedder's similarity function."""
        return getattr(self.embedder, "similarity_fn_name", "cosine")

    def encode(self, texts: Sequence[str], /, *, conditions: Sequence[str] | None = None, **options: Any) -> Array:
        """Sentence vectors (n, D); with conditions, prompts or other options, the cache is not used."""
        if conditions is not None:
            options["conditions"] = conditions
        if options or not texts:
            return self.embedder.encode(texts, **options)
        return apply_steps(self.cache.vectors(self.name, texts), self.post)

    def encode_words(self, texts: Sequence[str], words: Sequence[Any], /) -> Any:
        """Word vectors."""
        return self.embedder.encode_words(texts, words)


def apply_steps(vectors: Array, steps: Sequence[Post]) -> Array:
    """Apply post-processing steps to vectors (n, D), to (n, D')."""
    if not steps:
        return vectors
    rows = torch.from_numpy(np.ascontiguousarray(vectors))
    for step in steps:
        rows = step(rows)
    return np.asarray(rows.numpy())
