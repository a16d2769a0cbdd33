"""Near-duplicates: rows whose vectors have a cosine of at least a threshold, found exactly among all pairs.

Products of blocks are taken in float32. The error of such a cosine is bounded whatever the order of the sum: what lies
above the threshold by more than the bound is a repeat, what lies below it by more is none, and all pairs between are
decided in float64 by a sum in a fixed order. So the result depends on neither the blocks, nor the threads, nor the
order of the rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import InputError
from .unit_vectors import Vectors, checked, squares, unit

Rows = NDArray[np.int64]

BLOCK = 2048  # rows of a block; its products with another are 16 MiB
NUMBERS = 2**20  # numbers that are multiplied in float64 at a time


@dataclass(frozen=True)
class Duplicates:
    """What repeats what, among n rows.

    Attributes:
        kept: (n,) for each row, the first row of its group; its own number where it is that row, or repeats none.
        cosines: (n,) the cosine with that row, in float64; 1 where the row is kept. It may lie below the threshold
            where a row is like another that is like the kept one.
    """

    kept: Rows
    cosines: NDArray[np.float64]

    @property
    def repeats(self) -> Rows:
        """The rows that repeat an earlier one, in ascending order."""
        return np.flatnonzero(self.kept != np.arange(len(self.kept)))


def near_duplicates(vectors: ArrayLike, over: float, on_progress: Callable[[int], None] = lambda _: None) -> Duplicates:
    """Group rows by transitive closure: a row is in a group if its cosine with any row of it is at least ``over``.

    All pairs are compared. Beside the vectors, memory holds one copy of them in float32, and 16 MiB
    for the products of two blocks (about 150 MiB more while whole blocks are alike).

    Args:
        vectors: (n, D), finite. They are compared in float32. A vector of zeros repeats none.
        over: the threshold, above 0 and at most 1; a pair with just this cosine is a repeat.
        on_progress: is called with the number of rows that were finished since its last call.

    Raises:
        InputError: the threshold is out of range, or the vectors are no finite table.

    >>> near_duplicates([[1, 0], [0, 1], [2, 0.1]], 0.9).kept.tolist()
    [0, 1, 0]
    """
    check_threshold(over)
    table = checked(vectors)
    scaled = unit(table)
    first = _equal(table)
    for start in range(0, len(table), BLOCK):
        for other in range(start, len(table), BLOCK):
            rows, columns = _alike(table, scaled, start, other, over, first)
            first = joined(first, rows, columns)
        on_progress(min(BLOCK, len(table) - start))
    found = np.ones(len(table))
    repeats = np.flatnonzero(first != np.arange(len(table)))
    found[repeats] = cosines(table, repeats, first[repeats])
    return Duplicates(first, found)


def check_threshold(over: float) -> None:
    """Raise InputError for a threshold that is not above 0 and at most 1."""
    if not 0 < over <= 1:  # nan is neither
        raise InputError(f"{over}: the least cosine of a repeat lies above 0 and is at most 1, as 0.9")


def _equal(table: Vectors) -> Rows:
    """For each row, the first row with the same numbers; a row of zeros stands for itself."""
    found: dict[bytes, int] = {}
    digests = (hashlib.blake2b(row.tobytes(), digest_size=16).digest() for row in table)
    first = np.array([found.setdefault(digest, i) for i, digest in enumerate(digests)], np.int64)
    return np.where(table.any(axis=1), first, np.arange(len(table)))


def _alike(table: Vectors, scaled: Vectors, start: int, other: int, over: float, first: Rows) -> tuple[Rows, Rows]:
    """The pairs of rows of two blocks that are alike and not yet in one group."""
    products = scaled[start : start + BLOCK] @ scaled[other : other + BLOCK].T
    bound = error_bound(table.shape[1])
    if not products.size or products.max() < over - bound:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    near = products >= over - bound
    near &= first[start : start + BLOCK, None] != first[None, other : other + BLOCK]
    rows, columns = np.nonzero(near)
    alike = products[rows, columns] > over + bound
    rows, columns = rows + start, columns + other
    doubtful = np.flatnonzero(~alike)
    alike[doubtful] = cosines(table, rows[doubtful], columns[doubtful]) >= over
    return rows[alike], columns[alike]


def error_bound(dimension: int) -> float:
    """More than the error of a float32 product of two vectors of length 1, summed in any order.

    Each factor is rounded once, and a sum of D products by at most D roundings of 2**-24 of the sum of their sizes,
    which is at most 1 (Higham, Accuracy and Stability of Numerical Algorithms, 3.1). Twice that is taken.
    """
    return (dimension + 8) * 2.0**-23


def cosines(table: Vectors, rows: Rows, columns: Rows) -> NDArray[np.float64]:
    """The cosines (k,) of pairs of rows in float64; 0 where a vector is 0. They are symmetric, and 1 for equal rows."""
    found = np.zeros(len(rows))
    size = max(1, NUMBERS // max(1, table.shape[1]))
    for start in range(0, len(rows), size):
        part = slice(start, start + size)
        a, b = table[rows[part]], table[columns[part]]
        lengths = np.sqrt(squares(a) * squares(b))
        dots = (a.astype(np.float64) * b).sum(axis=1)
        np.divide(dots, lengths, out=found[part], where=lengths > 0)
    return np.clip(found, -1, 1)


def joined(first: Rows, rows: Rows, columns: Rows) -> Rows:
    """The groups after some pairs of rows were joined: for each row (n,), the first row of its group.

    >>> joined(np.arange(5), np.array([3, 1]), np.array([4, 3])).tolist()
    [0, 1, 2, 1, 1]
    """
    if not len(rows):
        return first
    first = first.copy()
    a, b = first[rows], first[columns]
    pairs = np.unique(np.minimum(a, b) * len(first) + np.maximum(a, b))
    for low, high in zip(*(part.tolist() for part in np.divmod(pairs, len(first))), strict=True):
        x, y = _root(first, low), _root(first, high)
        first[max(x, y)] = min(x, y)
    while not np.array_equal(first, shorter := first[first]):
        first = shorter
    return first


def _root(first: Rows, row: int) -> int:
    while first[row] != row:
        first[row] = first[first[row]]
        row = int(first[row])
    return row
