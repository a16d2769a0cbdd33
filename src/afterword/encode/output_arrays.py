"""The arrays that vectors are written to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..backbone.backbone import Backbone
from ..errors import InputError
from ..methods import AnyMethod
from ..post import Post, width_after

WINDOW = 16_384  # texts that are sorted by length together

Array = NDArray[np.floating[Any]]


def width_of(backbone: Backbone, method: AnyMethod, steps: Sequence[Post] = ()) -> int:
    """D, the number of components of a method's vectors after some post-processing steps.

    Raises:
        NotFitted: a step is not fitted yet.
        MethodError: a step takes vectors of another width.
    """
    return width_after(method.width(backbone), steps)


def output_arrays(
    backbone: Backbone, methods: Sequence[AnyMethod], texts: int, post: Sequence[Post], out: Array | None = None
) -> list[Array]:
    """The array that vectors are written to, for each method (n, D): ``out``, or a new one.

    Raises:
        InputError: ``out`` is no array that vectors can be written to, or has another shape.
    """
    shapes = [(texts, width_of(backbone, method, post)) for method in methods]
    if out is None:
        dtype = np.float64 if backbone.dtype == torch.float64 else np.float32
        return [np.empty(shape, dtype) for shape in shapes]
    if not isinstance(out, np.ndarray) or out.dtype not in (np.float32, np.float64) or not out.flags.writeable:
        what = f"a {type(out).__name__}"
        if isinstance(out, np.ndarray):
            what = f"an array of {out.dtype}" + ("" if out.flags.writeable else " that cannot be written to")
        raise InputError(f"out is {what}: give a numpy array of float32 or float64 that can be written to")
    if out.shape != shapes[0]:
        raise InputError(f"out has the shape {out.shape}: {texts} texts of this encoder need {shapes[0]}")
    rows, columns = map(abs, out.strides)
    if rows < columns * out.shape[1] and columns < rows * out.shape[0]:
        raise InputError(f"out has rows that overlap in memory (strides {out.strides}): give an array of its own")
    return [out]


def as_array(vectors: Any) -> Array:
    """Vectors as a numpy array, from any device."""
    if isinstance(vectors, list | tuple) and any(isinstance(v, Tensor) for v in vectors):
        vectors = torch.stack(list(vectors))
    if isinstance(vectors, Tensor):
        vectors = vectors.detach().cpu()
        return np.asarray(vectors.float() if vectors.dtype == torch.bfloat16 else vectors)
    return np.asarray(vectors)
