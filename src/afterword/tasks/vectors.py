"""A cache on disk for vectors that several tasks and encoders share, so that each text runs once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..errors import DataError
from ..post import Post
from .task import Embedder

Array = NDArray[np.floating[Any]]
OnProgress = Callable[[int], object]
"""Called with the number of texts that were just finished."""
EmbedTexts = Callable[[list[str], OnProgress], Mapping[str, Array]]
"""From texts to their vectors (n, D), by the name of the method."""

WINDOW = 8192  # number of texts that are sorted by length and held in memory together


@dataclass
class VectorCache:
    """The vectors of methods that share a forward pass, before post-processing.

    A method's vectors may differ by rounding between a shared forward and one of its own. So methods that share one
    always run together: an interrupted and resumed evaluation gives the same numbers as an uninterrupted one.

    Vectors are stored in unnamed temporary files, one per method, and memory-mapped: memory does not grow with the
    number of texts, and no file is left behind, however the process ends.

    Args:
        names: names of the methods.
        run: computes their vectors.
        folder: folder of the temporary files.
    """

    names: tuple[str, ...]
    run: EmbedTexts
    folder: Path
    _row: dict[str, int] = field(default_factory=dict)
    _stack: ExitStack = field(default_factory=ExitStack)
    _files: dict[str, Any] = field(default_factory=dict)
    _shape: dict[str, tuple[int, np.dtype[Any]]] = field(default_factory=dict)

    def missing(self, texts: Sequence[str]) -> list[str]:
        """The texts that are not in the cache, without duplicates."""
        return [t for t in dict.fromkeys(texts) if t not in self._row]

    def add(self, texts: Sequence[str], on_progress: OnProgress = lambda _: None) -> None:
        """Embed the texts that are not in the cache.

        Raises:
            DataError: the vectors cannot be written.
        """
        wanted = self.missing(texts)
        for first in range(0, len(wanted), WINDOW):
            window = wanted[first : first + WINDOW]
            for name, rows in self.run(window, on_progress).items():
                self._write(name, rows)
            self._row.update(zip(window, range(len(self._row), len(self._row) + len(window)), strict=True))

    def _write(self, name: str, rows: Array) -> None:
        try:
            if name not in self._files:
                self._files[name] = self._stack.enter_context(TemporaryFile(dir=self.folder))  # noqa: SIM115
                self._shape[name] = (rows.shape[1], rows.dtype)
            self._files[name].write(np.ascontiguousarray(rows).data)
            self._files[name].flush()
        except OSError as e:
            with suppress(OSError):
                self.close()  # behind rows that are half written, no other one would be found again
            self._files.clear()
            self._row.clear()
            raise DataError(f"{self.folder} cannot hold the vectors of the texts: {e.strerror or e}") from None

    def vectors(self, name: str, texts: Sequence[str]) -> Array:
        """The vectors (n, D) of texts by one of the methods; texts that are not in the cache are embedded."""
        self.add(texts)
        width, dtype = self._shape[name]
        mapped = np.memmap(self._files[name], dtype, "r", shape=(len(self._row), width))
        return np.asarray(mapped[[self._row[t] for t in texts]])

    def close(self) -> None:
        """Delete the temporary files, and forget all texts."""
        self._stack.close()
        self._files.clear()
        self._row.clear()


@dataclass(frozen=True)
class CachedEmbedder:
    """An embedder that takes sentence vectors from a `VectorCache`.

    Args:
        embedder: the whole encoder; it computes word vectors, and vectors with conditions.
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
