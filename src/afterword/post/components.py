"""Steps that are fitted to a mean and a covariance: centre, whiten, remove the top components. Each gives a `Dense`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import InputError
from .linear import Dense, check_positive
from .moments import Moments
from .unfitted import Unfitted, Vectors


class Affine(Unfitted):
    """A step that is fitted to the mean and the covariance of vectors, in one pass, and gives a linear layer."""

    @abstractmethod
    def of(self, moments: Moments) -> Dense:
        """The step for vectors with this mean and covariance.

        Raises:
            InputError: there were too few vectors, or they differ in too few directions.
        """

    def fit(self, vectors: Vectors | Iterable[Vectors]) -> Dense:
        """The step for these vectors; see `Unfitted.fit`."""
        return self.of(Moments().add(vectors))


@dataclass(frozen=True)
class Centre(Affine):
    """Subtract the mean of the vectors that the step was fitted to.

    >>> Centre().fit(torch.tensor([[1.0, 2.0], [3.0, 2.0]]))(torch.tensor([[3.0, 3.0]])).tolist()
    [[1.0, 1.0]]
    """

    def of(self, moments: Moments) -> Dense:
        """x - mean."""
        if not moments.count:
            raise InputError("no vectors: centre needs at least one")
        return _affine(torch.eye(len(moments.mean), dtype=torch.float64), moments.mean)


@dataclass(frozen=True)
class Whiten(Affine):
    """Mean 0, and the identity as covariance: z = diag(1 / sqrt(lambda)) U^T (x - mean), with covariance U lambda U^T.

    Source: Su et al. 2021, "Whitening Sentence Representations", Algorithm 1; the authors' code
    (bojone/BERT-whitening) is equal up to signs. The covariance is divided by n - 1, as there.

    Args:
        dimensions: number of directions to keep, those of largest variance; None = all in which the vectors differ
            (some models have components that never change).

    >>> whiten = Whiten().fit(torch.tensor([[0.0, 2.0], [0.0, -2.0], [1.0, 0.0], [-1.0, 0.0]]))
    >>> [round(z, 6) for z in whiten(torch.tensor([[0.0, 2.0]]))[0].tolist()]
    [1.224745, 0.0]
    """

    dimensions: int | None = None

    def __post_init__(self) -> None:
        """Validate the values."""
        if self.dimensions is not None:
            check_positive(self, "dimensions")

    def of(self, moments: Moments) -> Dense:
        """W (x - mean). All directions of fewer texts than components would be noise, and are refused."""
        values, rows = moments.principal()
        width = len(moments.mean)
        few = moments.count <= width
        wanted = min(self.dimensions or (width if few else len(values)), width)
        if wanted > len(values) or not len(values):
            raise InputError(
                f"whiten: {moments.count} vectors differ in {len(values)} directions only, not in {wanted}: "
                f"fit on more texts, or keep fewer dimensions (whiten:dimensions={max(len(values), 1)})"
            )
        return _affine(rows[:wanted] / values[:wanted, None].sqrt(), moments.mean)


@dataclass(frozen=True)
class RemoveTop(Affine):
    """Subtract the mean, then remove the k directions in which vectors differ most: they reflect word frequency.

    Source: Mu & Viswanath 2018, "All-but-the-Top", Algorithm 1. There the components to remove are computed before
    the mean is subtracted, here after it, so that they become 0. All vectors differ by the same constant.

    Args:
        k: number of directions; None = D / 100, as the paper recommends, but at least 1.

    >>> remove = RemoveTop(1).fit(torch.tensor([[0.0, 2.0], [0.0, -2.0], [1.0, 0.0], [-1.0, 0.0]]))
    >>> remove(torch.tensor([[3.0, 5.0]])).tolist()
    [[3.0, 0.0]]
    """

    k: int | None = None

    def __post_init__(self) -> None:
        """Validate the values."""
        if self.k is not None:
            check_positive(self, "k")

    def of(self, moments: Moments) -> Dense:
        """(I - U_k U_k^T)(x - mean)."""
        _, rows = moments.principal()
        width = len(moments.mean)
        k = self.k or max(1, width // 100)
        if k > len(rows) or k >= width:
            raise InputError(
                f"remove_top: {moments.count} vectors of {width} components differ in {len(rows)} directions: "
                f"{k} of them cannot be removed; fit on more texts, or remove fewer (remove_top:k=1)"
            )
        top = rows[:k]
        return _affine(torch.eye(width, dtype=torch.float64) - top.T @ top, moments.mean)


def _affine(weight: Tensor, mean: Tensor) -> Dense:
    """W (x - mean) as a linear layer, computed in float64 and stored in float32."""
    return Dense(weight.float().contiguous(), (-weight @ mean).float())
