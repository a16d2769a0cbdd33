"""Rows that have no vector: find the ones that an encoder refuses, and list each with its line and the reason."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import numpy as np

from ..errors import TooLong, WordNotFound
from ..files.atomic import atomic_file, remove_left
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
    """Rows without a vector, listed in a file that exists only if there are such rows.

    Args:
        path: the file; None = the first `SHOWN` rows are passed to `tell`.
        tell: a function that shows a line to the user.
    """

    def __init__(self, path: Path | None, tell: Callable[[str], object] = lambda _: None) -> None:
        self.path, self.tell, self.count = path, tell, 0
        self._stack = ExitStack()
        self._file: BinaryIO | None = None

    def __enter__(self) -> Rejects:
        """The file is opened only when the first row is added."""
        if self.path is not None:
            remove_left(self.path)
        return self

    def add(self, row: int, line: int | None, reason: str) -> None:
        """List a row: its number in the output from 0, its line in the input from 1 if it is known, and the reason."""
        self.count += 1
        if self.path is None:
            if self.count <= SHOWN:
                self.tell(f"rejected: line {line}: {reason}")
            return
        self._file = self._file or self._stack.enter_context(atomic_file(self.path))
        self._file.write(reject_line(row, line, reason))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Keep the file if there was no error; without rejected rows, the file of an earlier run stays."""
        self._stack.__exit__(kind, error, trace)
        if error is None and not self.count:
            leave(self.path, self.tell)


def reject_line(row: int, line: int | None, reason: str | None) -> bytes:
    """A line of the list of rejected rows."""
    return (json.dumps({"row": row, "line": line, "reason": reason}) + "\n").encode()


def leave(path: Path | None, tell: Callable[[str], object]) -> None:
    """Say that a list which the user has named is that of another run: it may be the only one of that run."""
    if path is not None and is_list(path):
        tell(f"{path} is the list of another run, and stays: this one has rejected no row")


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
