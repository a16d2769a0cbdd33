"""Check vectors, and scale them to length 1."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import InputError

Vectors = NDArray[np.float32]
ROWS = 4096  # rows that are scaled at a time in float64


def checked(vectors: ArrayLike) -> Vectors:
    """Vectors (n, D) in float32.

    Raises:
        InputError: they are no table of numbers, or a row is NaN or infinite.

    >>> checked([[1, 2]]).dtype
    dtype('float32')
    """
    with np.errstate(over="ignore"):  # what is too large for float32 is infinite there, and refused
        table = np.ascontiguousarray(vectors, np.float32)
    if table.ndim != 2:
        raise InputError(f"vectors have the shape (n, D), not {table.shape}")
    for start in range(0, len(table), ROWS):
        fine = np.isfinite(table[start : start + ROWS]).all(axis=1)
        if not fine.all():
            raise InputError(f"row {start + int(np.argmin(fine))} of the vectors is not finite: leave it out")
    return table


def squares(rows: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """The sums of squares (n,) of rows (n, D), in float64."""
    wide = rows.astype(np.float64)
    return np.asarray((wide * wide).sum(axis=1))


def unit(vectors: Vectors) -> Vectors:
    """Vectors (n, D) scaled to length 1; a vector of zeros stays.

    >>> unit(checked([[3, 4], [0, 0]])).tolist()
    [[0.6000000238418579, 0.800000011920929], [0.0, 0.0]]
    """
    scaled = np.empty_like(vectors)
    for start in range(0, len(vectors), ROWS):
        part = slice(start, start + ROWS)
        lengths = np.sqrt(squares(vectors[part]))
        scaled[part] = vectors[part] / np.where(lengths > 0, lengths, 1)[:, None]
    return scaled
