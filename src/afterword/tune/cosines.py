"""Cosines of pairs for many recipes at once, from dot products between layers."""

from __future__ import annotations

import torch
from torch import Tensor

from ..methods.states import States
from .recipes import Family

NOTHING = 1e-6
"""Centred vectors shorter than this share of their length before centring are rounding errors."""


def mixture(family: Family) -> Tensor:
    """The matrix (S S, C) that turns dot products of S layers into those of C kinds of states.

    A mean of layers is summed here: cosines do not depend on the factor.
    """
    layers = family.layers
    mix = torch.zeros(len(layers), len(layers), len(family.kinds))
    for c, kind in enumerate(family.kinds):
        at = [layers.index(layer) for layer in States(kind).layers]
        for j in at:
            mix[j, at, c] = 1
    return mix.flatten(0, 1)


def products(vectors: Tensor, mix: Tensor) -> tuple[Tensor, Tensor]:
    """Dot products of the vectors of pairs.

    Args:
        vectors: of the P left texts, then of the P right ones, by R weightings in S layers (2 P, R, S, D).
        mix: the result of `mixture`.

    Returns:
        Left times right (P, R, C), and each vector times itself (2 P, R, C).
    """
    texts, rows, *_ = vectors.shape
    flat = vectors.flatten(0, 1)
    half = len(flat) // 2
    own = torch.bmm(flat, flat.mT).flatten(1) @ mix
    cross = torch.bmm(flat[:half], flat[half:].mT).flatten(1) @ mix
    return cross.view(texts // 2, rows, -1), own.clamp(min=0).view(texts, rows, -1)


def cosines(cross: Tensor, own: Tensor) -> Tensor:
    """Cosines (P, R, C) from the results of `products`; 0 if a vector is zero, as in `scores.cosines`."""
    left, right = own.chunk(2)
    lengths = left.sqrt() * right.sqrt()
    return cross / torch.where(lengths > 0, lengths, 1)


def raw_and_centred(vectors: Tensor, mean: Tensor, mix: Tensor) -> Tensor:
    """Cosines of the raw vectors and of the centred ones (P, R, C, 2).

    The mean is subtracted from the vectors themselves, which are overwritten: if all vectors have nearly one
    direction, centring the dot products instead would lose the differences in rounding.

    Args:
        vectors: (2 P, R, S, D), as for `products`; overwritten.
        mean: their mean (R, S, D).
        mix: the result of `mixture`.
    """
    cross, own = products(vectors, mix)
    raw = cosines(cross, own)
    cross, left = products(vectors.sub_(mean), mix)
    centred = cosines(cross, left)
    nothing = (left <= NOTHING**2 * own).unflatten(0, (2, -1)).any(0)
    return torch.stack([raw, centred.masked_fill(nothing, torch.nan)], -1)
