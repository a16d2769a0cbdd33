"""Embed rows a window at a time, so that the memory needed does not grow with the input."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ..files.lines import Reader
from .items import Item
from .rejects import Encode, bisected
from .write_vectors import Array, Block

WINDOW = 2048  # maximum number of rows in a window
CHARACTERS = 2**24  # approximate maximum number of characters in a window


Progress = Callable[[float], None]


def windows(items: Iterable[Item], rows: int = WINDOW, characters: int = CHARACTERS) -> Iterator[list[Item]]:
    """Group items into windows of so many rows; of fewer, if their texts are long.

    >>> [len(w) for w in windows([Item(1, "a"), Item(2, "b"), Item(3, "c")], rows=2)]
    [2, 1]
    """
    window: list[Item] = []
    held = 0
    for item in items:
        window.append(item)
        held += len(item.text or "")
        if len(window) >= rows or held >= characters:
            yield window
            window, held = [], 0
    if window:
        yield window


class Listener(Protocol):
    """A progress listener: its methods are called while a file is embedded."""

    def begin(self, at: int, rows: int, characters: Sequence[int]) -> None:
        """Called when a window begins.

        Args:
            at: how far the input was read, in its own unit.
            rows: the number of rows that were read in all.
            characters: of each text of the window that is embedded.
        """

    def more(self, rows: float) -> None:
        """Called when so many more rows of the window were embedded."""

    def end(self) -> None:
        """Called when the window was written."""

    def skip(self, at: int, rows: int) -> None:
        """Called instead of the others, for a window that an earlier run has embedded."""


@dataclass(frozen=True)
class Embedding:
    """How rows become vectors.

    Attributes:
        encode: from rows to vectors (n, D) by name; it calls its second argument with the number of finished rows.
        why_nan: from a text whose vector is NaN or infinite to the reason.
        columns: from rows to the columns that are written beside the vectors.
    """

    encode: Callable[[Sequence[Item], Progress], dict[str, Array]]
    why_nan: Callable[[str], str]
    columns: Callable[[Sequence[Item]], dict[str, list[Any]]]


def stream_rows(
    reader: Reader, items: Iterable[Item], embedding: Embedding, listener: Listener, window: int = WINDOW
) -> Iterator[tuple[list[Item], Block]]:
    """Embed rows a window at a time; yields its rows, with the `problem` of each without a vector, and the block.

    Args:
        reader: the open input, which knows how much of it was read.
        items: the rows of the input.
        embedding: how they become vectors.
        listener: progress callbacks.
        window: maximum number of rows in a window.
    """
    empty = embedding.encode([], lambda _: None)
    rows = 0
    for part in windows(items, window):
        rows += len(part)
        listener.begin(reader.at, rows, [len(item.text or "") for item in part if item.problem is None])
        vectors = embed_window(part, lambda some: embedding.encode(some, listener.more), embedding.why_nan, empty)
        yield part, Block(embedding.columns(part), vectors)
        listener.end()


def embed_window(
    items: list[Item], encode: Encode, why_nan: Callable[[str], str], empty: dict[str, Array]
) -> dict[str, Array]:
    """Vectors by name (n, D), NaN for an item without one, whose `problem` is set to the reason."""
    good = [i for i, item in enumerate(items) if item.problem is None]
    encoded, problems = bisected(encode, [items[i] for i in good], empty)
    finite = np.logical_and.reduce([np.isfinite(rows).all(1) for rows in encoded.values()])
    for i, problem, fine in zip(good, problems, finite, strict=True):
        items[i].problem = problem or (None if fine else why_nan(items[i].text or ""))
    vectors = {name: np.full((len(items), a.shape[1]), np.nan, a.dtype) for name, a in empty.items()}
    for name, rows in encoded.items():
        vectors[name][np.asarray(good, int)[finite]] = rows[finite]
    return vectors
