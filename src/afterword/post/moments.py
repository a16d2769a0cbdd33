"""The mean and the covariance of any number of vectors, in one pass."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import InputError
from .unfitted import Vectors, blocks

NEGLIGIBLE = 1e-12
"""A direction whose variance is at most this fraction of the largest holds only rounding errors of float32."""


@dataclass(eq=False)
class Moments:
    """Count, mean and covariance of the vectors added so far, in float64 and O(D^2) memory.

    Blocks are merged by their own means (Chan, Golub & LeVeque 1983), so that a large mean costs no precision.

    Attributes:
        count: number of vectors.
        mean: (D,).
        scatter: sum of the outer products of the centred vectors (D, D).

    >>> moments = Moments().add(torch.tensor([[1.0, 0.0], [3.0, 0.0]]))
    >>> moments.mean.tolist(), moments.covariance.tolist()
    ([2.0, 0.0], [[2.0, 0.0], [0.0, 0.0]])
    """

    count: int = 0
    mean: Tensor = torch.empty(0)
    scatter: Tensor = torch.empty(0)

    def add(self, vectors: Vectors | Iterable[Vectors]) -> Moments:
        """Add vectors (n, D), or several arrays of them; returns itself.

        Raises:
            InputError: a vector is NaN or infinite, or has another width.
        """
        for block in blocks(vectors):
            self._merge(block.double())
        return self

    def _merge(self, x: Tensor) -> None:
        if not self.count:
            self.mean, self.scatter = x.new_zeros(x.shape[1]), x.new_zeros(x.shape[1], x.shape[1])
        elif len(self.mean) != x.shape[1]:
            raise InputError(f"vectors of {x.shape[1]} components after some of {len(self.mean)}")
        mean = x.mean(0)
        x, apart = x - mean, mean - self.mean
        count = self.count + len(x)
        self.scatter = self.scatter + x.T @ x + torch.outer(apart, apart) * (self.count * len(x) / count)
        self.mean = self.mean + apart * (len(x) / count)
        self.count = count

    @property
    def covariance(self) -> Tensor:
        """(D, D), divided by n - 1.

        Raises:
            InputError: fewer than two vectors were added.
        """
        if self.count < 2:
            raise InputError(f"{self.count} vectors have no covariance: fit on more texts")
        return self.scatter / (self.count - 1)

    def directions(self) -> tuple[Tensor, Tensor]:
        """The eigenvalues (D,) of the covariance, largest first, and its eigenvectors as rows (D, D); see `eigen`."""
        return eigen(self.covariance)

    def principal(self) -> tuple[Tensor, Tensor]:
        """The principal directions of the vectors, largest variance first.

        Returns:
            Variances (r,) and directions as rows (r, D), r <= min(D, n - 1), without directions of no variance.
        """
        values, rows = self.directions()
        kept = values > values[0] * NEGLIGIBLE
        kept[self.count - 1 :] = False
        return values[kept], rows[kept]


def eigen(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """The eigenvalues of a symmetric matrix (D, D), largest first, none below 0, and its eigenvectors as rows (D, D).

    The largest component of each eigenvector is positive, so that a second fit gives the same signs.
    """
    values, columns = torch.linalg.eigh(matrix)
    rows = columns.T.flip(0)
    largest = rows.gather(1, rows.abs().argmax(1, keepdim=True))
    return values.flip(0).clamp(min=0), rows * largest.sign()
