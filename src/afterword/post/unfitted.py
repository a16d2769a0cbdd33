"""The base class of steps that are fitted to vectors; `fit` returns the step that is applied."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import InputError, NotFitted
from .linear import Post

Vectors: TypeAlias = Tensor | NDArray[np.floating[Any]]
"""Vectors (n, D)."""

BLOCK = 8192  # number of vectors that are read at a time


class Unfitted(Post):
    """The options of a step that must be fitted to vectors. `fit` returns the step that is applied."""

    @abstractmethod
    def fit(self, vectors: Vectors | Iterable[Vectors]) -> Post:
        """Fit the step.

        Args:
            vectors: (n, D), or an iterable of such arrays, which need not be in memory together.

        Raises:
            InputError: there are too few vectors, one is NaN or infinite, or their widths differ.
        """

    def __call__(self, vectors: Tensor) -> Tensor:
        """Refuse: the step is not fitted.

        Raises:
            NotFitted: always.
        """
        raise self.not_fitted()

    def width(self, width: int) -> int:
        """Refuse: the number of components is known only once the step is fitted.

        Raises:
            NotFitted: always.
        """
        raise self.not_fitted()

    def not_fitted(self) -> NotFitted:
        """The error to raise if the step is used before it is fitted."""
        return NotFitted(f"{self} has seen no vectors yet: encoder = encoder.fit(texts), and use that")


def blocks(vectors: Vectors | Iterable[Vectors]) -> Iterator[Tensor]:
    """Validate vectors and yield blocks of them (n, D) on the CPU, `BLOCK` vectors at a time.

    Raises:
        InputError: an array is not (n, D), holds NaN or infinite numbers, or has another width than before.

    >>> [len(block) for block in blocks([torch.zeros(10_000, 2), np.zeros((3, 2))])]
    [8192, 1808, 3]
    """
    width, count = None, 0
    for part in [vectors] if isinstance(vectors, Tensor | np.ndarray) else vectors:
        if part.ndim != 2 or width not in (None, part.shape[1]):
            wanted = "(n, D)" if width is None else f"(n, {width})"
            raise InputError(f"vectors of the shape {tuple(part.shape)}: give {wanted}")
        width = part.shape[1]
        for first in range(0, len(part), BLOCK):
            block = part[first : first + BLOCK]
            tensor = torch.tensor(np.asarray(block)) if isinstance(block, np.ndarray) else block.detach().cpu()
            finite = tensor.isfinite().all(1)
            if not bool(finite.all()):
                raise InputError(f"vector {count + int(finite.int().argmin())} is not finite: leave it out of the fit")
            count += len(tensor)
            yield tensor
