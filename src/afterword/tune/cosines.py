"""Cosines of pairs by many recipes at once, from the products of their layers."""

from __future__ import annotations

import torch
from torch import Tensor

from ..methods.states import States
from .recipes import Family

NOTHING = 1e-6
"""Vectors that keep less than this share of their length without the mean are nothing but rounding."""


def mixture(family: Family) -> Tensor:
    """From products of layers to those of the kinds of states (S S, C): a mean of layers is a sum, save its length."""
    layers = family.layers
    mix = torch.zeros(len(layers), len(layers), len(family.kinds))
    for c, kind in enumerate(family.kinds):
        at = [layers.index(layer) for layer in States(kind).layers]
        for j in at:
            mix[j, at, c] = 1
    return mix.flatten(0, 1)


def products(vectors: Tensor, mix: Tensor) -> tuple[Tensor, Tensor]:
    """Products of the vectors of pairs.

    Args:
        vectors: of the P left texts, then of the P right ones, by R weightings in S layers (2 P, R, S, D).
        mix: what `mixture` gave.

    Returns:
        left . right (P, R, C); and of each vector with itself (2 P, R, C).
    """
    texts, rows, *_ = vectors.shape
    flat = vectors.flatten(0, 1)
    half = len(flat) // 2
    own = torch.bmm(flat, flat.mT).flatten(1) @ mix
    cross = torch.bmm(flat[:half], flat[half:].mT).flatten(1) @ mix
    return cross.view(texts // 2, rows, -1), own.clamp(min=0).view(texts, rows, -1)


def cosines(cross: Tensor, own: Tensor) -> Tensor:
    """Cosines (P, R, C) of what `products` gave; 0 where a vector is zero, as in `scores.cosines`."""
    left, right = own.chunk(2)
    lengths = left.sqrt() * right.sqrt()
    return cross / torch.where(lengths > 0, lengths, 1)


def raw_and_centred(vectors: Tensor, mean: Tensor, mix: Tensor) -> Tensor:
    """Cosines of the vectors as they are and without their mean (P, R, C, 2).

    The mean is taken off the vectors themselves, which are overwritten: worked out from products, what is left of
    vectors that all point one way would be lost in rounding.

    Args:
        vectors: (2 P, R, S, D), as for `products`.
        mean: (R, S, D).
        mix: what `mixture` gave.
    """
    cross, own = products(vectors, mix)
    raw = cosines(cross, own)
    cross, left = products(vectors.sub_(mean), mix)
    centred = cosines(cross, left)
    nothing = (left <= NOTHING**2 * own).unflatten(0, (2, -1)).any(0)
    return torch.stack([raw, centred.masked_fill(nothing, torch.nan)], -1)
