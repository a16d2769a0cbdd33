"""Rows in, vectors out, a window at a time: what is held in memory does not grow with the input."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from ..errors import TooLong, WordNotFound
from ..files.lines import Reader
from ..files.write import Array, Block, Sink
from .items import Item
from .rejects import Rejects

WINDOW = 2048  # rows
CHARACTERS = 2**24  # of a window, about


Encode = Callable[[Sequence[Item]], dict[str, Array]]
Progress = Callable[[float], None]


def windows(items: Iterable[Item], rows: int = WINDOW, characters: int = CHARACTERS) -> Iterator[list[Item]]:
    """Items, so many at a time: fewer where their texts are long.

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


def bisected(
    encode: Encode, items: Sequence[Item], empty: dict[str, Array]
) -> tuple[dict[str, Array], list[str | None]]:
    """Encode; where one text is refused, find it by halves and let the others through.

    Args:
        encode: texts to vectors (n, D) by name.
        items: n of them.
        empty: what `encode` gives for none.

    Returns:
        Vectors, NaN for a refused one; per item, why it was.
    """
    if not items:
        return empty, []
    try:
        return encode(items), [None] * len(items)
    except (TooLong, WordNotFound) as e:
        if len(items) == 1:
            reason = str(e).removeprefix("text 0 ").replace(" text 0", " the text").replace("text 0 ", "the text ")
            return {name: np.full((1, a.shape[1]), np.nan, a.dtype) for name, a in empty.items()}, [reason]
    half = len(items) // 2
    (a, why), (b, too) = (bisected(encode, part, empty) for part in (items[:half], items[half:]))
    return {name: np.concatenate([a[name], b[name]]) for name in empty}, why + too


class Listener(Protocol):
    """Hears how far a run is."""

    def begin(self, at: int, rows: int) -> None:
        """A window begins: with it the input is read up to `at`, and there are `rows` in all."""

    def more(self, rows: float) -> None:
        """So many more rows of the window are embedded."""

    def end(self) -> None:
        """The window is written."""


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
        reader: how far the input has been read.
        items: the rows made from it.
        encode: rows to vectors (n, D) by name; it says how many more rows are done.
        why_nan: what is wrong with a text whose vector is not finite.
        columns: what is written beside the vectors.
        sink: opens what is written to, by arrays (0, D) by name.
        rejects: where rows without a vector are listed.
        listener: hears how far the run is.
        window: rows at a time.

    Returns:
        How many rows there were.
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
    """Vectors by name (n, D), NaN where there is none; the items' problems are filled in."""
    good = [i for i, item in enumerate(items) if item.problem is None]
    made, problems = bisected(encode, [items[i] for i in good], empty)
    finite = np.logical_and.reduce([np.isfinite(rows).all(1) for rows in made.values()])
    for i, problem, fine in zip(good, problems, finite, strict=True):
        items[i].problem = problem or (None if fine else why_nan(items[i].text or ""))
    vectors = {name: np.full((len(items), a.shape[1]), np.nan, a.dtype) for name, a in empty.items()}
    for name, rows in made.items():
        vectors[name][np.asarray(good, int)[finite]] = rows[finite]
    return vectors
