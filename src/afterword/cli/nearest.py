"""The most similar pairs of vectors, found block by block."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..encode.similarity import Array, similarity

Rows = NDArray[np.int64]

PAIRS = 2**22  # maximum number of pairs whose similarities are in memory at once


@dataclass(frozen=True)
class Nearest:
    """Nearest of rows, the most similar ones first; of equal ones that with the lower row, then the lower column.

    Attributes:
        rows: (k,) rows of the first array.
        columns: (k,) rows of the second one.
        scores: (k,) their similarities.
    """

    rows: Rows
    columns: Rows
    scores: Array

    def best(self, top: int | None) -> Nearest:
        """The first `top` of them, sorted."""
        order = np.lexsort((self.columns, self.rows, -self.scores))[:top]
        return Nearest(self.rows[order], self.columns[order], self.scores[order])


def numbered(vectors: Array) -> list[tuple[Rows, Array]]:
    """Vectors (m, D) as one block whose rows count from 0."""
    return [(np.arange(len(vectors)), vectors)]


def nearest(
    a: Array,
    b: Iterable[tuple[Rows, Array]],
    name: str = "cosine",
    *,
    top: int | None = None,
    threshold: float | None = None,
    itself: bool = False,
) -> Nearest:
    """The most similar pairs of a row of ``a`` and a row of ``b``. Memory does not grow with the number of rows of b.

    Args:
        a: (n, D).
        b: blocks: the numbers of rows (m,), ascending through all blocks, and their vectors (m, D).
        name: the similarity function, as for `similarity`.
        top: how many pairs; None = all.
        threshold: only pairs that are at least so similar.
        itself: the rows of b are those of a: each pair once, and no row with itself.

    >>> pairs = nearest(np.array([[1.0, 0.0]]), numbered(np.array([[0.0, 1.0], [2.0, 0.0]])), top=1)
    >>> pairs.columns.tolist(), pairs.scores.tolist()
    ([1], [1.0])
    """
    found = [_pairs(similarity(a, a[:0], name), np.arange(0), itself, top, threshold)]
    size = max(1, PAIRS // max(1, len(a)))
    for rows, vectors in b:
        for start in range(0, len(rows), size):
            part = slice(start, start + size)
            found.append(_pairs(similarity(a, vectors[part], name), rows[part], itself, top, threshold))
            if top is not None:
                found = [_joined(found).best(top)]
    return _joined(found).best(top)


def _joined(parts: list[Nearest]) -> Nearest:
    columns = zip(*((part.rows, part.columns, part.scores) for part in parts), strict=True)
    return Nearest(*map(np.concatenate, columns))


def _pairs(table: Array, numbers: Rows, itself: bool, top: int | None, threshold: float | None) -> Nearest:
    """The top pairs of a block (n, m) whose columns have these numbers; also what equals the last one."""
    wanted = np.ones(table.shape, bool) if threshold is None else table >= threshold
    if itself:
        wanted &= np.arange(len(table))[:, None] < numbers
    values = table[wanted]
    if top is not None and 0 < top < len(values):
        wanted &= table >= np.partition(values, len(values) - top)[len(values) - top]
    rows, columns = np.nonzero(wanted)
    return Nearest(rows, numbers[columns], table[rows, columns])
