"""The vectors of an ensemble: those of its methods, weighted, and added or put one behind the other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ..backbone.backbone import Backbone
from ..methods import AnyMethod, Ensemble
from ..post import Normalise, Post, after
from ..text.distinct import Distinct
from .output_arrays import Array


def weighted(ensemble: Ensemble, i: int, vectors: Tensor) -> Tensor:
    """The vectors (n, D) of the ensemble's i-th method, as they go into the ensemble's vectors."""
    return (Normalise()(vectors) if ensemble.normalise else vectors) * ensemble.factors()[i]


def joined(method: AnyMethod, parts: Sequence[Tensor]) -> Tensor:
    """The vectors (n, D) of an ensemble from those of each of its methods (n, D_i); a single method's as they are."""
    if not isinstance(method, Ensemble):
        return parts[0]
    scaled = [weighted(method, i, part) for i, part in enumerate(parts)]
    return torch.cat(scaled, -1) if method.join == "concat" else sum(scaled[1:], scaled[0])


def own_steps(method: AnyMethod, post: Sequence[Post]) -> Sequence[Post]:
    """The steps for the vectors of each method: none in an ensemble, where `joined_rows` applies them."""
    return () if isinstance(method, Ensemble) else post


def joined_rows(method: AnyMethod, parts: Sequence[Array], post: Sequence[Post]) -> Array:
    """`joined` of arrays, after some steps; a single method's array has had them."""
    if not isinstance(method, Ensemble):
        return parts[0]
    return after(joined(method, [torch.from_numpy(part) for part in parts]), post).numpy()


class Rows:
    """Writes the vectors of a window of texts to their rows of ``result``, after the steps of ``post``.

    An ensemble's vectors are kept until each of its methods has given its own.
    """

    def __init__(
        self, backbone: Backbone, method: AnyMethod, given: Distinct, post: Sequence[Post], result: Array
    ) -> None:
        self.method, self.given, self.post, self.result = method, given, post, result
        self.widths = [member.width(backbone) for member in method.members]
        self.left = torch.full((len(given.texts),), len(method.members))
        self.kept: Tensor | None = None

    def add(self, i: int, indices: list[int], vectors: Tensor) -> None:
        """Take the vectors (n, D_i) of the i-th method for n texts, and write those that are complete."""
        if isinstance(self.method, Ensemble):
            indices, vectors = self._complete(self.method, i, indices, vectors)
            if not indices:
                return
        rows, once = self.given.where(indices), after(vectors, self.post).cpu().numpy()
        times = [len(self.given.rows[t]) for t in indices]
        self.result[rows] = once if len(rows) == len(indices) else np.repeat(once, times, axis=0)

    def _complete(self, ensemble: Ensemble, i: int, indices: list[int], vectors: Tensor) -> tuple[list[int], Tensor]:
        part, at = weighted(ensemble, i, vectors).cpu(), torch.tensor(indices)
        concat = ensemble.join == "concat"
        start = sum(self.widths[:i]) if concat else 0
        if self.kept is None:  # -0.0 + x is x, also where x is -0.0
            width = sum(self.widths) if concat else self.widths[0]
            self.kept = torch.full((len(self.left), width), -0.0, dtype=part.dtype)
        self.kept[at, start : start + self.widths[i]] += part
        self.left[at] -= 1
        done = at[self.left[at] == 0]
        return done.tolist(), self.kept[done].to(vectors.device)

    def leave(self, indices: Sequence[int]) -> None:
        """Write NaN for texts that a method cannot embed."""
        self.result[self.given.where(indices)] = np.nan
