"""Vectors that several tasks and several encoders share: each text is run once, and waits on disk."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..post import Post
from .task import Embedder

Array = NDArray[np.floating[Any]]
Told = Callable[[int], object]
"""Hears how many more texts are done."""
Run = Callable[[list[str], Told], Mapping[str, Array]]
"""From texts to their vectors (n, D) by name."""

WINDOW = 8192  # texts that are sorted by length, and held in memory, together


@dataclass
class Forward:
    """Vectors that are made together, by methods that share the model's forward pass, before any step behind it.

    A method's vectors may differ by rounding between a shared forward and one of its own. So all that share one are
    always made together: what is left of an interrupted run gives the numbers that the whole run would have given.

    Vectors lie in temporary files that have no name, one per method, and are mapped from there: memory does not grow
    with the number of texts, and nothing is left behind however the process ends.

    Args:
        names: of the methods.
        run: makes their vectors.
        folder: where the files lie.
    """

    names: tuple[str, ...]
    run: Run
    folder: Path
    _row: dict[str, int] = field(default_factory=dict)
    _stack: ExitStack = field(default_factory=ExitStack)
    _files: dict[str, Any] = field(default_factory=dict)
    _shape: dict[str, tuple[int, np.dtype[Any]]] = field(default_factory=dict)

    def missing(self, texts: Sequence[str]) -> list[str]:
        """Those that were not embedded yet, each once."""
        return [t for t in dict.fromkeys(texts) if t not in self._row]

    def add(self, texts: Sequence[str], told: Told = lambda _: None) -> None:
        """Embed what is missing of these."""
        wanted = self.missing(texts)
        for first in range(0, len(wanted), WINDOW):
            window = wanted[first : first + WINDOW]
            for name, rows in self.run(window, told).items():
                if name not in self._files:
                    self._files[name] = self._stack.enter_context(TemporaryFile(dir=self.folder))  # noqa: SIM115
                    self._shape[name] = (rows.shape[1], rows.dtype)
                self._files[name].write(np.ascontiguousarray(rows).data)
                self._files[name].flush()
            self._row.update(zip(window, range(len(self._row), len(self._row) + len(window)), strict=True))

    def vectors(self, name: str, texts: Sequence[str]) -> Array:
        """The vectors (n, D) of texts by one of the methods; what is missing is embedded."""
        self.add(texts)
        width, dtype = self._shape[name]
        mapped = np.memmap(self._files[name], dtype, "r", shape=(len(self._row), width))
        return np.asarray(mapped[[self._row[t] for t in texts]])

    def close(self) -> None:
        """Give the files back."""
        self._stack.close()
        self._files.clear()
        self._row.clear()


@dataclass(frozen=True)
class Lookup:
    """An embedder that takes what it can from a `Forward`.

    Args:
        embedder: the whole encoder; it makes word vectors and vectors under conditions.
        forward: where plain sentence vectors come from.
        name: of the method there.
        post: the steps from those to the encoder's own.
    """

    embedder: Embedder
    forward: Forward
    name: str
    post: tuple[Post, ...] = ()

    @property
    def prompts(self) -> Mapping[str, str]:
        """The embedder's instructions by name, where it has any."""
        return getattr(self.embedder, "prompts", None) or {}

    @property
    def similarity_fn_name(self) -> str:
        """How the embedder compares vectors."""
        return getattr(self.embedder, "similarity_fn_name", "cosine")

    def encode(self, texts: Sequence[str], /, *, conditions: Sequence[str] | None = None, **options: Any) -> Array:
        """Sentence vectors (n, D); those under conditions, prompts or other options the embedder makes itself."""
        if conditions is not None:
            options["conditions"] = conditions
        if options or not texts:
            return self.embedder.encode(texts, **options)
        return through(self.forward.vectors(self.name, texts), self.post)

    def encode_words(self, texts: Sequence[str], words: Sequence[Any], /) -> Any:
        """Word vectors."""
        return self.embedder.encode_words(texts, words)


def through(vectors: Array, steps: Sequence[Post]) -> Array:
    """Vectors (n, D) after all steps (n, D')."""
    if not steps:
        return vectors
    found = torch.from_numpy(np.ascontiguousarray(vectors))
    for step in steps:
        found = step(found)
    return np.asarray(found.numpy())
