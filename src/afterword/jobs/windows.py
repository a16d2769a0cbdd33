"""Embed rows a window at a time, so that the memory needed does not grow with the input."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from ..files.lines import Reader
from ..files.write_vectors import Array, Block, Sink
from .items import Item
from .rejects import Encode, Rejects, bisected

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

    def begin(self, at: int, rows: int) -> None:
        """Called when a window begins: the input is read up to `at`, and `rows` rows were read in all."""

    def more(self, rows: float) -> None:
        """Called when so many more rows of the window were embedded."""

    def end(self) -> None:
        """Called when the window was written."""


def embed_rows(
    reader: Reader,
    items: Iterable[Item],
    encode: Callable[[Sequence[Item], Progress], dict[str, Array]],
    why_nan: Callable[[str], str],
    columns: Callable[[Sequence[Item]], dict[str, list[Any]]],
    sink: Callable[[dict[str, Array]], Sink],
    rejects: Rejects,
    listener: Listener,
    window: int = WINDOW,
) -> int:
    """Embed every row and write it, a window at a time.

    Args:
        reader: the open input, which knows how much of it was read.
        items: the rows of the input.
        encode: from rows to vectors (n, D) by name; it calls its second argument with the number of finished rows.
        why_nan: from a text whose vector is NaN or infinite to the reason.
        columns: from rows to the columns that are written beside the vectors.
        sink: opens the output, given an array (0, D) for each column of vectors.
        rejects: the list of rows without a vector.
        listener: called as the run proceeds.
        window: maximum number of rows in a window.

    Returns:
        The number of rows.
    """
    empty = encode([], lambda _: None)
    out, rows = sink(empty), 0
    for part in windows(items, window):
        listener.begin(reader.at, rows + len(part))
        vectors = embed_window(part, lambda items: encode(items, listener.more), why_nan, empty)
        for row, item in enumerate(part, rows):
            if item.problem is not None:
                rejects.add(row, item.line, item.problem)
        out.write(Block(columns(part), vectors))
        rows += len(part)
        listener.end()
    out.close()
    return rows


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
