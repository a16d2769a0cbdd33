"""Similarity of vectors, under sentence-transformers' names."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import InputError

Array = NDArray[np.floating[Any]]


def similarity(a: Array, b: Array, name: str = "cosine") -> Array:
    """How similar each row of ``a`` is to each of ``b``.

    Args:
        a: (n, D), or (D,) for one.
        b: (m, D), or (D,) for one.
        name: "cosine", "dot", "euclidean" or "manhattan"; distances are negated.

    Returns:
        (n, m); larger is more similar.

    Raises:
        InputError: unknown name, or widths that differ.

    >>> similarity(np.array([[1.0, 0.0]]), np.array([[2.0, 0.0]])).tolist()
    [[1.0]]
    """
    a, b = np.atleast_2d(np.asarray(a)), np.atleast_2d(np.asarray(b))
    if a.shape[1] != b.shape[1]:
        raise InputError(f"vectors of {a.shape[1]} and {b.shape[1]} components cannot be compared")
    if name == "cosine":
        return np.asarray(_unit(a) @ _unit(b).T)
    if name == "dot":
        return np.asarray(a @ b.T)
    if name == "euclidean":
        return -np.asarray(np.sqrt(np.maximum((a**2).sum(1)[:, None] + (b**2).sum(1)[None] - 2 * a @ b.T, 0)))
    if name == "manhattan":
        return -np.stack([np.abs(row - b).sum(1) for row in a])
    raise InputError(f"similarity {name!r}: choose cosine, dot, euclidean or manhattan")


def _unit(x: Array) -> Array:
    return np.asarray(x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12))
