"""Rows in, vectors out, a window at a time: what is held in memory does not grow with the input."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from ..errors import TooLong, WordNotFound
from ..files.write import Array, Block
from ..text.tokenizer import check_text
from .guard import REJECTED
from .heard import say
from .progress import Bar
from .target import Rejects, Target

if TYPE_CHECKING:
    from ..files.lines import Reader

WINDOW = 2048  # rows
CHARACTERS = 2**24  # of a window, about


@dataclass(slots=True)
class Item:
    """A row to embed.

    Attributes:
        line: where it comes from.
        text: None where there is none.
        problem: why it has no vector.
        beside: what belongs to the text: its condition, its word.
    """

    line: int
    text: str | None
    problem: str | None = None
    beside: Any = None


Encode = Callable[[Sequence[Item]], dict[str, Array]]
Told = Callable[[float], None]


def fault(value: object) -> str | None:
    """Why a value is no text.

    >>> fault("fine"), fault(" "), fault(5)
    (None, 'is blank', 'is not a string but a number')
    """
    from ..errors import InputError
    from ..files.lines import kind_of

    if not isinstance(value, str):
        kind = kind_of(value)
        return "is null" if kind == "null" else f"is not a string but {'an' if kind[0] in 'ao' else 'a'} {kind}"
    if not value.strip():
        return "is blank" if value else "is empty"
    try:
        check_text(value, "it")
    except InputError as e:
        return str(e).removeprefix("it ")
    return None


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


def pour(
    reader: Reader,
    items: Iterable[Item],
    encode: Callable[[Sequence[Item], Told], dict[str, Array]],
    why_nan: Callable[[str], str],
    columns: Callable[[Sequence[Item]], dict[str, list[Any]]],
    target: Target,
    file: BinaryIO,
    *,
    window: int = WINDOW,
    progress: bool | None = None,
) -> int:
    """Embed every item and write it.

    Args:
        reader: how far the input has been read.
        items: made from it.
        encode: items to vectors by name; it tells how many more are done.
        why_nan: what is wrong with a text whose vector is not finite.
        columns: what is written beside the vectors.
        target: where to.
        file: the same, open.
        window: rows at a time.
        progress: show a bar; None = on a terminal.

    Returns:
        The exit code: 1 if a row was rejected.
    """
    empty = encode([], lambda _: None)
    sink, rows = target.sink(file, empty), 0
    with Rejects(target.listing) as rejects, Bar(reader.total, progress) as bar:
        for part in windows(items, window):
            bar.begin(reader.at, rows + len(part))
            vectors = embed_window(part, lambda items: encode(items, bar.more), why_nan, empty)
            for row, item in enumerate(part, rows):
                if item.problem is not None:
                    rejects.add(row, item.line, item.problem)
            sink.write(Block(columns(part), vectors))
            rows += len(part)
            bar.end()
        sink.close()
    if target.path is not None or rejects.count:
        say(summary(rows, rejects, bar.seconds))
    return REJECTED if rejects.count else 0


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


def summary(rows: int, rejects: Rejects, seconds: float) -> str:
    """The last line of a run.

    >>> summary(3, Rejects(None), 1.0)
    '3 rows in 1.0 s (3/s)'
    """
    line = f"{rows} rows in {seconds:.1f} s ({rows / max(seconds, 1e-9):.0f}/s)"
    if not rejects.count:
        return line
    where = f", listed in {rejects.path}" if rejects.path is not None else ""
    return f"{line}; {rejects.count} rejected{where}"
