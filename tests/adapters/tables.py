"""Vectors that are looked up, so that scores can be worked out by hand, and data sets of a few rows."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from afterword.tasks.rows import Folder


class Table:
    """An embedder that knows a vector for each text, and remembers what it was asked for."""

    def __init__(self, vectors: Mapping[str, Sequence[float]]) -> None:
        self.vectors = vectors
        self.asked: list[str] = []

    def encode(self, texts: Sequence[str], /, *, conditions: Sequence[str] | None = None) -> np.ndarray:
        self.asked += texts
        return np.array([self.vectors[t] for t in texts], np.float32)

    def encode_words(self, texts: Sequence[str], words: Sequence[Any], /) -> Any:
        raise AssertionError("no task of mteb asks for words")


def at(degrees: float) -> tuple[float, float]:
    """A vector of length 1 at an angle."""
    return (float(np.cos(np.radians(degrees))), float(np.sin(np.radians(degrees))))


def write(folder: Path, **files: Iterable[Mapping[str, Any]]) -> Folder:
    """Data sets as .jsonl, by name; "__" stands for "." in a name."""
    for name, rows in files.items():
        path = folder / f"{name.replace('__', '.')}.jsonl"
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), "utf-8")
    return Folder(folder)
