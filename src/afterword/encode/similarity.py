"""Similarity of vectors: cosine, dot product and negated distances, under sentence-transformers' names."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ..errors import InputError

Array = NDArray[np.floating[Any]]

BLOCK = 1024  # number of rows of a whose distances are computed together

FAR = 32  # a row with entries beyond 2^32 or all below 2^-32 is scaled before its length is computed


def similarity(a: Any, b: Any, name: str = "cosine") -> Array:
    """The similarity of each row of ``a`` to each row of ``b``.

    Args:
        a: (n, D), or (D,) for one vector; an array, a tensor, or a list of either.
        b: (m, D), or (D,) for one vector.
        name: "cosine", "dot", "euclidean" or "manhattan"; distances are negated.

    Returns:
        (n, m); larger is more similar.

    Raises:
        InputError: the name is unknown, or the numbers of components differ.

    >>> similarity(np.array([[1.0, 0.0]]), np.array([[2.0, 0.0]])).tolist()
    [[1.0]]
    """
    a, b = as_rows(a), as_rows(b)
    if a.shape[1] != b.shape[1]:
        raise InputError(f"vectors of {a.shape[1]} and {b.shape[1]} components cannot be compared")
    kind = np.result_type(a, b, np.float32)  # integers and half floats would overflow
    if name == "cosine":
        return np.asarray(unit(a, kind) @ unit(b, kind).T)
    if name == "dot":
        return np.asarray(a.astype(kind, copy=False) @ b.astype(kind, copy=False).T)
    if name == "euclidean":
        return _negative_distances(a, b, 2.0, kind)
    if name == "manhattan":
        return _negative_distances(a, b, 1.0, kind)
    raise InputError(f"similarity {name!r}: choose cosine, dot, euclidean or manhattan")


def pairwise(a: Any, b: Any, name: str = "cosine") -> Array:
    """The similarity of each row of ``a`` (n, D) to the same row of ``b`` (n, D), as `similarity`: (n,).

    Raises:
        InputError: the name is unknown, or the shapes differ.
    """
    a, b = as_rows(a), as_rows(b)
    if a.shape != b.shape:
        raise InputError(f"vectors of the shapes {a.shape} and {b.shape} cannot be compared row by row")
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
    return np.asarray(scores, np.result_type(a, b, np.float32))


def as_rows(vectors: Any) -> Array:
    """Vectors (n, D) as a numpy array, from any device; one vector (D,) is a row (1, D)."""
    listed = isinstance(vectors, list | tuple)
    rows = np.atleast_2d(np.stack([_array(v) for v in vectors]) if listed and vectors else _array(vectors))
    if rows.ndim != 2:
        raise InputError(f"vectors of the shape {rows.shape}: give (n, D), or (D,) for one")
    return rows


def _array(x: Any) -> Array:
    if hasattr(x, "detach"):  # a tensor; numpy has no bfloat16
        x = x.detach().cpu()
        x = x.float() if x.dtype.itemsize == 2 else x
    return np.asarray(x)


def unit(vectors: Array, kind: DTypeLike = np.float64) -> Array:
    """Vectors (..., D) at length 1, in a type; zeros stay zeros.

    Where squares would overflow or underflow, vectors are scaled first, exactly.

    >>> unit(np.array([[3.0, 4.0], [0.0, 0.0]])).tolist()
    [[0.6, 0.8], [0.0, 0.0]]
    """
    x = np.asarray(vectors).astype(kind, copy=False)
    largest = np.maximum(x.max(-1, initial=0, keepdims=True), -x.min(-1, initial=0, keepdims=True))
    scale = np.frexp(largest)[1]
    if (np.abs(scale) > FAR).any():
        x = np.ldexp(x, np.where(np.abs(scale) > FAR, -scale, 0))
    return np.asarray(x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-12))


def _negative_distances(a: Array, b: Array, p: float, kind: np.dtype[Any]) -> Array:
    """Negated distances between rows by the p-norm of their differences, in float64, block by block."""
    from torch import cdist, from_numpy

    distances, columns = np.empty((len(a), len(b)), kind), from_numpy(b.astype(np.float64))
    for i in range(0, len(a), BLOCK):
        rows = from_numpy(a[i : i + BLOCK].astype(np.float64))
        distances[i : i + BLOCK] = cdist(rows, columns, p, compute_mode="donot_use_mm_for_euclid_dist").numpy()
    return np.asarray(np.negative(distances, out=distances))
