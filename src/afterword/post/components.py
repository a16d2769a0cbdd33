"""Steps that are fitted to a mean and a covariance: centre, whiten, standardise and others. Each gives a `Dense`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import InputError, MethodError
from ..spelling import ADDED, check_fields, written
from .linear import Dense, check_positive
from .moments import NEGLIGIBLE, Moments, eigen
from .unfitted import Unfitted, Vectors, blocks


class Affine(Unfitted):
    """A step that is fitted to the mean and the covariance of vectors, in one pass, and gives a linear layer."""

    unit: ClassVar[bool] = False
    """Whether they are those of the vectors at length 1."""

    @abstractmethod
    def of(self, moments: Moments) -> Dense:
        """The step for vectors with this mean and covariance.

        Raises:
            InputError: there were too few vectors, or they differ in too few directions.
        """

    def fit(self, vectors: Vectors | Iterable[Vectors]) -> Dense:
        """The step for these vectors; see `Unfitted.fit`."""
        parts = blocks(vectors)
        return self.of(Moments().add((F.normalize(x, dim=-1) for x in parts) if self.unit else parts))


def _spelled(step: Affine) -> str:
    """The options of a step; one that was added later is left out at its default, as in files."""
    return f"{type(step).__name__}({', '.join(f'{k}={v!r}' for k, v in written(step).items())})"


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


@dataclass(frozen=True, repr=False)
class Whiten(Affine):
    """Mean 0, and the identity as covariance: z = diag(1 / sqrt(lambda)) U^T (x - mean), with covariance U lambda U^T.

    Source: Su et al. 2021, "Whitening Sentence Representations", Algorithm 1; the authors' code
    (bojone/BERT-whitening) is equal up to signs. The covariance is divided by n - 1, as there. With `epsilon` and
    `rotate` it is Soft-ZCA (arXiv 2411.17538): z = U diag(1 / sqrt(lambda + epsilon)) U^T (x - mean).

    Args:
        dimensions: number of directions to keep, those of largest variance; None = all in which the vectors differ
            (some models have components that never change), with `epsilon` all.
        epsilon: added to each variance: the larger, the less is changed but for the scale. It has the unit of
            squared vectors: put normalise in front to give it one meaning for all models.
        rotate: turn the result back by U, so that it lies as near as possible to x - mean, with all its components.

    >>> whiten = Whiten().fit(torch.tensor([[0.0, 2.0], [0.0, -2.0], [1.0, 0.0], [-1.0, 0.0]]))
    >>> [round(z, 6) for z in whiten(torch.tensor([[0.0, 2.0]]))[0].tolist()]
    [1.224745, 0.0]
    """

    dimensions: int | None = None
    epsilon: float = field(default=0.0, metadata=ADDED)
    rotate: bool = field(default=False, metadata=ADDED)

    __repr__ = _spelled

    def __post_init__(self) -> None:
        """Validate the values."""
        check_fields(self)
        if self.dimensions is not None:
            check_positive(self, "dimensions")
        if not 0 <= self.epsilon < float("inf"):
            raise MethodError(f"whiten: epsilon={self.epsilon!r}: give a number from 0, such as 0.01")
        if self.rotate and self.dimensions is not None:
            raise MethodError(
                f"whiten: rotate=true keeps all components, and dimensions={self.dimensions} does not: give one of them"
            )

    def of(self, moments: Moments) -> Dense:
        """W (x - mean). Without epsilon, all directions of fewer texts than components would be noise: refused."""
        values, rows = moments.directions() if self.epsilon else moments.principal()
        width = len(moments.mean)
        few = moments.count <= width
        wanted = min(self.dimensions or (width if few else len(values)), width)
        if wanted > len(values) or not len(values):
            fewer = "give an epsilon" if self.rotate else "keep fewer dimensions"
            example = "epsilon=0.01,rotate=true" if self.rotate else f"dimensions={max(len(values), 1)}"
            raise InputError(
                f"whiten: {moments.count} vectors differ in {len(values)} directions only, not in {wanted}: "
                f"fit on more texts, or {fewer} (whiten:{example})"
            )
        weight = rows[:wanted] / (values[:wanted, None] + self.epsilon).sqrt()
        return _affine(rows[:wanted].T @ weight if self.rotate else weight, moments.mean)


@dataclass(frozen=True)
class Standardise(Affine):
    """Mean 0 and standard deviation 1 in each component; a component that never changes becomes 0.

    Source: MoEE's code (tianyi-lab/MoE-Embedding@f80bebd), which computes both from the texts of a batch, so that a
    vector depends on its company; here they are fitted. The variance is divided by n - 1, as there.

    >>> Standardise().fit(torch.tensor([[1.0, 7.0], [2.0, 7.0], [3.0, 7.0]]))(torch.tensor([[5.0, 7.0]])).tolist()
    [[3.0, 0.0]]
    """

    def of(self, moments: Moments) -> Dense:
        """(x - mean) / std."""
        variance = moments.covariance.diagonal()
        changes = variance > NEGLIGIBLE * (variance.max() + moments.mean**2)
        return _affine(torch.diag(variance.rsqrt().where(changes, 0)), moments.mean)


@dataclass(frozen=True)
class RemoveMean(Affine):
    """Remove the mean direction: x - (x.m) m, with m the mean of the vectors at length 1, scaled to length 1.

    Source: arXiv 2511.11041 (2025), R2. There x has length 1; the cosines are the same for any length.

    >>> RemoveMean().fit(torch.tensor([[3.0, 1.0], [3.0, -1.0]]))(torch.tensor([[5.0, 2.0]])).tolist()
    [[0.0, 2.0]]
    """

    unit: ClassVar[bool] = True

    def of(self, moments: Moments) -> Dense:
        """(I - m m^T) x; `moments` are those of vectors of length 1."""
        if not moments.count or not bool(moments.mean.any()):
            raise InputError(f"remove_mean: the mean of {moments.count} vectors has no direction: fit on other texts")
        return Dense(_without(F.normalize(moments.mean[None])).float())


@dataclass(frozen=True, repr=False)
class RemoveTop(Affine):
    """Subtract the mean, then remove the k directions in which vectors differ most: they reflect word frequency.

    Source: Mu & Viswanath 2018, "All-but-the-Top", Algorithm 1. There the components to remove are computed before
    the mean is subtracted, here after it, so that they become 0. All vectors differ by the same constant.

    Args:
        k: number of directions; None = D / 100, as the paper recommends, but at least 1.
        centre: subtract the mean. False = remove the first k singular vectors of the vectors as they are: with k=1 the
            second half of SIF (Arora et al. 2017, Algorithm 1).

    >>> remove = RemoveTop(1).fit(torch.tensor([[0.0, 2.0], [0.0, -2.0], [1.0, 0.0], [-1.0, 0.0]]))
    >>> remove(torch.tensor([[3.0, 5.0]])).tolist()
    [[3.0, 0.0]]
    """

    k: int | None = None
    centre: bool = field(default=True, metadata=ADDED)

    __repr__ = _spelled

    def __post_init__(self) -> None:
        """Validate the values."""
        check_fields(self)
        if self.k is not None:
            check_positive(self, "k")

    def of(self, moments: Moments) -> Dense:
        """(I - U_k U_k^T)(x - mean), or (I - U_k U_k^T) x with U of the second moments."""
        _, rows = moments.principal()
        width = len(moments.mean)
        if not self.centre and moments.count:
            values, rows = eigen(moments.scatter / moments.count + torch.outer(moments.mean, moments.mean))
            rows = rows[values > values[0] * NEGLIGIBLE]
        k = self.k or max(1, width // 100)
        if k > len(rows) or k >= width:
            raise InputError(
                f"remove_top: {moments.count} vectors of {width} components differ in {len(rows)} directions: "
                f"{k} of them cannot be removed; fit on more texts, or remove fewer (remove_top:k=1)"
            )
        weight = _without(rows[:k])
        return _affine(weight, moments.mean) if self.centre else Dense(weight.float())


def _without(rows: Tensor) -> Tensor:
    """I - R^T R, which removes orthonormal directions (k, D) from a vector."""
    return torch.eye(rows.shape[1], dtype=torch.float64) - rows.T @ rows


def _affine(weight: Tensor, mean: Tensor) -> Dense:
    """W (x - mean) as a linear layer, computed in float64 and stored in float32."""
    return Dense(weight.float().contiguous(), (-weight @ mean).float())
