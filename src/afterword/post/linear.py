"""Steps that need no fitting: normalise, truncate, and a dense layer with given weights."""

from __future__ import annotations

import numbers
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import MethodError, ModelError


class Post(ABC):
    """A step from vectors (n, D) to vectors (n, D')."""

    @abstractmethod
    def __call__(self, vectors: Tensor) -> Tensor:
        """Transform vectors (n, D); rows do not depend on each other."""

    def width(self, width: int) -> int:
        """D', for vectors of D = ``width`` components.

        Raises:
            MethodError: the step takes vectors of another width.
        """
        return width


def after(vectors: Tensor, steps: Sequence[Post]) -> Tensor:
    """Vectors (n, D) after some steps (n, D')."""
    for step in steps:
        vectors = step(vectors)
    return vectors


def width_after(width: int, steps: Sequence[Post]) -> int:
    """D', the number of components after some steps, for vectors of D = ``width`` components.

    Raises:
        NotFitted: a step is not fitted yet.
        MethodError: a step takes vectors of another width.
    """
    for step in steps:
        width = step.width(width)
    return width


def check_positive(step: Post, name: str) -> None:
    """Validate an option of a step that must be a whole number of at least 1.

    Raises:
        MethodError: it is not.
    """
    value = getattr(step, name)
    if not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < 1:
        raise MethodError(f"{type(step).__name__}: {name}={value!r}: give a whole number of at least 1")
    object.__setattr__(step, name, int(value))


def check_width(step: Post, given: int, width: int) -> None:
    """Check that a step can be applied to vectors of a given width.

    Raises:
        MethodError: the step needs vectors of another width.
    """
    if given != width:
        raise MethodError(
            f"{type(step).__name__} takes vectors of {width} components, and these have {given}: "
            "it was fitted to another model, or to vectors before another step; fit it anew"
        )


@dataclass(frozen=True)
class Normalise(Post):
    """Scale vectors to length 1; a zero vector stays zero."""

    def __call__(self, vectors: Tensor) -> Tensor:
        """Vectors (n, D) of length 1."""
        return F.normalize(vectors, dim=-1)


@dataclass(frozen=True)
class Truncate(Post):
    """Keep the first components, as Matryoshka models are trained for.

    Args:
        dimensions: number of components to keep.
    """

    dimensions: int

    def __post_init__(self) -> None:
        """Validate the values."""
        check_positive(self, "dimensions")

    def width(self, width: int) -> int:
        """D', which is D if the vectors have fewer components."""
        return min(width, self.dimensions)

    def __call__(self, vectors: Tensor) -> Tensor:
        """Vectors (n, dimensions)."""
        return vectors[..., : self.dimensions]


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "Identity": lambda x: x,
    "Tanh": torch.tanh,
    "ReLU": torch.relu,
    "GELU": F.gelu,
    "Sigmoid": torch.sigmoid,
    "SiLU": F.silu,
}


@dataclass(frozen=True, eq=False)
class Dense(Post):
    """A linear layer and an activation: sentence-transformers' Dense.

    Args:
        weight: (D', D).
        bias: (D',) or None.
        activation: a name of `ACTIVATIONS`.
    """

    weight: Tensor
    bias: Tensor | None = None
    activation: str = "Identity"

    def __post_init__(self) -> None:
        """Validate the activation."""
        if self.activation not in ACTIVATIONS:
            raise ModelError(f"Dense activation {self.activation!r}: known are {', '.join(ACTIVATIONS)}")

    @classmethod
    def first(cls, dimensions: int, width: int) -> Dense:
        """The layer that keeps the first components of a vector as they are, to the last bit.

        >>> Dense.first(2, 3)(torch.tensor([[1.0, 2.0, 3.0]])).tolist()
        [[1.0, 2.0]]
        """
        return cls(torch.eye(min(dimensions, width), width))

    def width(self, width: int) -> int:
        """D', the number of rows of the weight."""
        check_width(self, width, self.weight.shape[1])
        return int(self.weight.shape[0])

    def __call__(self, vectors: Tensor) -> Tensor:
        """Vectors (n, D'); raises MethodError if the vectors have another width than the weight."""
        self.width(vectors.shape[-1])
        weight = self.weight.to(vectors)
        bias = self.bias.to(vectors) if self.bias is not None else None
        return ACTIVATIONS[self.activation](F.linear(vectors, weight, bias))
