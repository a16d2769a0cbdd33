"""Rows that have no vector: find the ones that an encoder refuses, and list each with its line and the reason."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from ..errors import DataError, TooLong, WordNotFound
from ..files.atomic import atomic_file
from .items import Item
from .write_vectors import Array

SHOWN = 10  # number of rejected rows that are shown if there is no file for them

Encode = Callable[[Sequence[Item]], dict[str, Array]]


def bisected(
    encode: Encode, items: Sequence[Item], empty: dict[str, Array]
) -> tuple[dict[str, Array], list[str | None]]:
    """Encode items; if one is refused, find it by bisection and encode the others.

    Args:
        encode: from items to vectors (n, D) by name.
        items: n items.
        empty: the result of `encode` for no items.

    Returns:
        Vectors, NaN for a refused item; and for each item, the reason why it was refused, or None.
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


class Rejects:
    """Rows without a vector, which are listed in a file at the end, if there are any.

    Args:
        path: the file; None = the first `SHOWN` rows are passed to `tell`.
        tell: a function that shows a line to the user.
    """

    def __init__(self, path: Path | None, tell: Callable[[str], object] = lambda _: None) -> None:
        self.path, self.tell, self.lines = path, tell, list[bytes]()

    @property
    def count(self) -> int:
        """The number of rows without a vector."""
        return len(self.lines)

    def add(self, row: int, line: int | None, reason: str) -> None:
        """List a row: its number in the output from 0, its line in the input from 1 if it is known, and the reason."""
        self.lines.append(reject_line(row, line, reason))
        if self.path is None and self.count <= SHOWN:
            self.tell(f"rejected: line {line}: {reason}")

    def __enter__(self) -> Rejects:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Write the file, if there was no error."""
        if kind is None and self.path is not None and self.lines:
            with atomic_file(self.path) as file:
                file.writelines(self.lines)


def check_some(rows: int, rejected: int, listing: Path | None) -> None:
    """Refuse a result without any vector.

    Raises:
        DataError: every row was rejected.
    """
    if rows == rejected > 0:
        listed = "" if listing is None else f", listed in {listing}"
        raise DataError(f"no row could be embedded: {rows} of {rows} rejected{listed}")


def reject_line(row: int, line: int | None, reason: str | None) -> bytes:
    """A line of the list of rejected rows."""
    return (json.dumps({"row": row, "line": line, "reason": reason}) + "\n").encode()


def forget(path: Path) -> None:
    """Remove the list of an earlier run, and no other file."""
    if is_list(path):
        path.unlink()


def is_list(path: Path) -> bool:
    """Whether a file is a list of rejected rows, by its first line."""
    try:
        with path.open("rb") as file:
            return set(json.loads(file.readline(1 << 20))) == {"row", "line", "reason"}
    except (OSError, ValueError, TypeError, RecursionError):
        return False
