"""Similarity of vectors: cosine, dot product and negated distances, under sentence-transformers' names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ..errors import InputError

Array = NDArray[np.floating[Any]]

BLOCK = 1024  # number of rows of a and of b whose distances are computed together

FAR = 32  # a row with entries beyond 2^32 or all below 2^-32 is scaled before its length is computed


def similarity(a: Array, b: Array, name: str = "cosine") -> Array:
    """The similarity of each row of ``a`` to each row of ``b``.

    Args:
        a: (n, D), or (D,) for one vector.
        b: (m, D), or (D,) for one vector.
        name: "cosine", "dot", "euclidean" or "manhattan"; distances are negated.

    Returns:
        (n, m); larger is more similar.

    Raises:
        InputError: the name is unknown, or the numbers of components differ.

    >>> similarity(np.array([[1.0, 0.0]]), np.array([[2.0, 0.0]])).tolist()
    [[1.0]]
    """
    a, b = _rows(a), _rows(b)
    if a.shape[1] != b.shape[1]:
        raise InputError(f"vectors of {a.shape[1]} and {b.shape[1]} components cannot be compared")
    kind = np.result_type(a, b, np.float32)  # integers and half floats would overflow
    if name == "cosine":
        return np.asarray(unit(a, kind) @ unit(b, kind).T)
    if name == "dot":
        return np.asarray(a.astype(kind, copy=False) @ b.astype(kind, copy=False).T)
    if name == "euclidean":
        return _negative_distances(a, b, _euclidean, kind)
    if name == "manhattan":
        return _negative_distances(a, b, _manhattan, kind)
    raise InputError(f"similarity {name!r}: choose cosine, dot, euclidean or manhattan")


def pairwise(a: Array, b: Array, name: str = "cosine") -> Array:
    """The similarity of each row of ``a`` to the same row of ``b``.

    Args:
        a: (n, D), or (D,) for one vector.
        b: (n, D), or (D,) for one vector.
        name: as for `similarity`.

    Returns:
        (n,); larger is more similar.

    Raises:
        InputError: the name is unknown, or the shapes differ.

    >>> pairwise(np.array([[1.0, 0.0]]), np.array([[2.0, 0.0]])).tolist()
    [1.0]
    """
    a, b = _rows(a), _rows(b)
    if a.shape != b.shape:
        raise InputError(f"vectors of the shapes {a.shape} and {b.shape} cannot be compared row by row")
    kind = np.result_type(a, b, np.float32)
    x, y = a.astype(np.float64), b.astype(np.float64)
    if name == "cosine":
        scores = (unit(x) * unit(y)).sum(1)
    elif name == "dot":
        scores = (x * y).sum(1)
    elif name == "euclidean":
        scores = -np.linalg.norm(x - y, axis=1)
    elif name == "manhattan":
        scores = -np.abs(x - y).sum(1)
    else:
        raise InputError(f"similarity {name!r}: choose cosine, dot, euclidean or manhattan")
    return np.asarray(scores, kind)


def _rows(x: Any) -> Array:
    rows = np.atleast_2d(np.asarray(x.detach().cpu() if hasattr(x, "detach") else x))
    if rows.ndim != 2:
        raise InputError(f"vectors of the shape {rows.shape}: give (n, D), or (D,) for one")
    return rows


def unit(vectors: Array, kind: DTypeLike = np.float64) -> Array:
    """Vectors at length 1; zeros stay zeros. Where squares would overflow or underflow, they are scaled first, exactly.

    Args:
        vectors: (..., D).
        kind: the type that lengths are taken in, and of what is returned.

    >>> unit(np.array([[3.0, 4.0], [0.0, 0.0]])).tolist()
    [[0.6, 0.8], [0.0, 0.0]]
    """
    x = np.asarray(vectors).astype(kind, copy=False)
    largest = np.maximum(x.max(-1, initial=0, keepdims=True), -x.min(-1, initial=0, keepdims=True))
    scale = np.frexp(largest)[1]
    if (np.abs(scale) > FAR).any():
        x = np.ldexp(x, np.where(np.abs(scale) > FAR, -scale, 0))
    return np.asarray(x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-12))


def _negative_distances(a: Array, b: Array, between: Callable[[Array, Array], Array], kind: np.dtype[Any]) -> Array:
    """Negated distances between rows, computed in float64, block by block."""
    distances = np.empty((len(a), len(b)), kind)
    for i in range(0, len(a), BLOCK):
        left = a[i : i + BLOCK].astype(np.float64)
        for j in range(0, len(b), BLOCK):
            distances[i : i + BLOCK, j : j + BLOCK] = between(left, b[j : j + BLOCK].astype(np.float64))
    return np.asarray(np.negative(distances, out=distances))


def _euclidean(a: Array, b: Array) -> Array:
    """Euclidean distances (n, m), by |a|^2 + |b|^2 - 2ab; for rows that are close together, by their difference.

    If a distance is small beside the lengths of the vectors, that formula subtracts nearly equal numbers: below a
    thousandth of the lengths fewer than ten digits would be left, and in the end none.
    """
    lengths = (a * a).sum(1)[:, None] + (b * b).sum(1)[None]
    squares = lengths - 2 * (a @ b.T)
    rows, columns = np.nonzero(squares < 1e-6 * lengths)
    for k in range(0, len(rows), BLOCK):
        i, j = rows[k : k + BLOCK], columns[k : k + BLOCK]
        squares[i, j] = ((a[i] - b[j]) ** 2).sum(1)
    return np.asarray(np.sqrt(squares, out=squares))


def _manhattan(a: Array, b: Array) -> Array:
    import torch

    return np.asarray(torch.cdist(torch.from_numpy(a), torch.from_numpy(b), 1.0).numpy())
