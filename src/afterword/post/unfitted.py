"""What every step that learns from vectors has in common: it is a value, and fitting gives the step itself."""

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

BLOCK = 8192  # vectors that are read at once


class Unfitted(Post):
    """A step that must see vectors first: what is to be fitted, and how. `fit` gives the step that is applied."""

    @abstractmethod
    def fit(self, vectors: Vectors | Iterable[Vectors]) -> Post:
        """The step, fitted.

        Args:
            vectors: (n, D), or several such arrays one after the other, which need never be in memory together.

        Raises:
            InputError: they are too few, not finite, or of different widths.
        """

    def __call__(self, vectors: Tensor) -> Tensor:
        """Refuse: there is nothing to apply yet.

        Raises:
            NotFitted: always.
        """
        raise self.not_fitted()

    def width(self, width: int) -> int:
        """Refuse: how many there will be is known once the step is fitted.

        Raises:
            NotFitted: always.
        """
        raise self.not_fitted()

    def not_fitted(self) -> NotFitted:
        """What to raise where the step itself is wanted."""
        return NotFitted(f"{self} has seen no vectors yet: encoder = encoder.fit(texts), and use that")


def blocks(vectors: Vectors | Iterable[Vectors]) -> Iterator[Tensor]:
    """Vectors some thousands at a time (n, D), on the CPU and checked.

    Raises:
        InputError: no (n, D) array, a number that is not finite, or another width than before.

    >>> [len(block) for block in blocks([torch.zeros(10_000, 2), np.zeros((3, 2))])]
    [8192, 1808, 3]
    """
    width, seen = None, 0
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
                raise InputError(f"vector {seen + int(finite.int().argmin())} is not finite: leave it out of the fit")
            seen += len(tensor)
            yield tensor
