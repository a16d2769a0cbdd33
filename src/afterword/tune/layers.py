"""Choose a layer without labels, by measures of every layer's vectors and token states."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..encode.limits import Limits
from ..encoder import Encoder
from ..errors import InputError, MethodError
from ..methods import Method, one_method
from ..methods.states import States
from ..post import Normalise
from ..text.inputs import check_texts
from .recipes import Family
from .search import Reading, each_reading, write_texts
from .tuning import with_default_prompt

Array = NDArray[np.floating[Any]]

CRITERIA: dict[str, tuple[str, int]] = {
    "dataset_entropy": ("dataset entropy", 1),
    "dimension": ("intrinsic dimension (TwoNN)", -1),
    "prompt_entropy": ("prompt entropy", 1),
    "curvature": ("curvature", -1),
}
"""The measures by name: their title, and whether the layer with the highest (1) or the lowest (-1) is chosen. The first
is the default, for the measurement in docs/tune.md."""

FEWEST = 20  # minimum number of texts
KEPT = 0.9  # share of the texts, those with the smallest ratios, that TwoNN fits its line to


@dataclass(frozen=True)
class LayerTable:
    """Measures of every layer, from 0 (the embeddings) to the last.

    Attributes:
        method: the method whose states are chosen.
        states: the states of each layer, as `States` spells them.
        measures: by the names of `CRITERIA`, one number per layer; NaN where it is not defined.
        texts: number of different texts.
    """

    method: Method
    states: tuple[str, ...]
    measures: dict[str, Array]
    texts: int

    def chosen(self, by: str) -> int:
        """The layer that a criterion chooses, the first of equal ones.

        Raises:
            InputError: the criterion is unknown, or not defined in any layer.
        """
        if by not in CRITERIA:
            raise InputError(f"no criterion {by!r}: choose one of {', '.join(CRITERIA)}")
        values = CRITERIA[by][1] * self.measures[by]
        if not np.isfinite(values).any():
            raise InputError(f"{by} is not defined in any layer: pass more texts, of several words")
        return int(np.nanargmax(values))

    def encoder(self, encoder: Encoder, by: str) -> Encoder:
        """The encoder with the layer that a criterion chooses. Of its steps only `Normalise` is kept."""
        normal = tuple(step for step in encoder.post if isinstance(step, Normalise))
        return replace(encoder, method=of_states(self.method, self.states[self.chosen(by)]), post=normal)


def layers_without_labels(
    encoder: Encoder,
    texts: Sequence[str],
    limits: Limits | None = None,
    on_progress: Callable[[int], object] = lambda _: None,
) -> LayerTable:
    """Measure all layers on texts, in one forward per text.

    Source: Facco et al. 2017 (TwoNN); Skean et al. 2025, "Layer by Layer" (entropies; curvature after Hosseini &
    Fedorenko 2023).

    Args:
        encoder: the model and the method whose states are chosen; its post-processing steps are not used.
        texts: at least 20, better a thousand; equal ones count once.
        limits: batch size and maximum length.
        on_progress: called with the number of finished texts of each batch.

    Raises:
        InputError: there are too few texts, or one has no token.
        MethodError: the method splits texts into chunks.
    """
    method, backbone = one_method(encoder.method, "choosing a layer"), encoder.backbone
    if method.layout.chunk is not None:
        raise MethodError(f"{method.name} splits texts into chunks: choose its layer with a different method")
    different = list(dict.fromkeys(check_texts(texts)))
    if len(different) < FEWEST:
        raise InputError(f"{len(different)} different texts are too few to measure layers on: pass at least {FEWEST}")
    limits = limits or Limits(encoder.max_length)
    kinds = (*(f"layer:{k}" for k in range(backbone.facts.states)), "last")
    family = Family((method.weigh,), (partial(of_states, method),), kinds)
    writings = write_texts(with_default_prompt(encoder, method.layout), different, backbone, limits)  # type: ignore[arg-type]
    vectors = torch.empty(len(different), len(kinds), backbone.facts.width)
    tokens = torch.empty(2, len(different), len(kinds), dtype=torch.float64)
    for indices, reading in each_reading(backbone, family, writings, limits):
        vectors[indices] = reading.vectors([0])[:, 0].float().cpu()
        tokens[:, indices] = _of_tokens(reading)
        on_progress(len(indices))
    entropy, curvature = tokens.nanmean(1).numpy()
    by_layer = [vectors[:, k].double() for k in range(len(kinds))]
    measures = {
        "dimension": np.array([intrinsic_dimension(v) for v in by_layer]),
        "dataset_entropy": np.array([float(matrix_entropy(v)) for v in by_layer]),
        "prompt_entropy": entropy,
        "curvature": curvature,
    }
    return LayerTable(method, kinds, measures, len(different))


def of_states(method: Method, states: str) -> Method:
    """The method with different states, also in its name."""
    return replace(
        method, states=States(states), name=f"{method.name.removesuffix(method.states.kind).strip()} {states}"
    )


def _of_tokens(reading: Reading) -> Tensor:
    """The entropy and the curvature of each text's token states in each layer (2, T, S)."""
    result = torch.full((2, reading.batch.texts, reading.states.shape[1]), math.nan, dtype=torch.float64)
    for group in reading.batch.groups:
        states = group.slice(reading.states.flatten(1)).unflatten(2, reading.states.shape[1:])
        states = states.transpose(1, 2).double().cpu()  # (G, S, n, D)
        real = group.text.cpu() >= 0
        result[:, group.text.cpu()[real]] = torch.stack([matrix_entropy(states[real]), mean_curvature(states[real])])
    return result


def matrix_entropy(rows: Tensor) -> Tensor:
    """The matrix-based entropy of vectors (..., n, D), as a share of its maximum ln min(n, D): 0 to 1 (...).

    -sum p_i ln p_i, with p_i the eigenvalues of Z Z^T divided by their sum. NaN for one vector, or for zeros.
    """
    n, width = rows.shape[-2:]
    gram = rows @ rows.mT if n <= width else rows.mT @ rows
    values = torch.linalg.eigvalsh(gram).clamp(min=0)
    share = values / values.sum(-1, keepdim=True)
    entropy: Tensor = -torch.xlogy(share, share).sum(-1)
    return entropy / math.log(min(n, width)) if min(n, width) > 1 else entropy * math.nan


def mean_curvature(rows: Tensor) -> Tensor:
    """The mean angle between successive steps x_{k+1} - x_k of vectors (..., n, D), in radians (...).

    NaN for fewer than three vectors. A step of length 0 has a right angle to any other.
    """
    steps = torch.nn.functional.normalize(rows.diff(dim=-2), dim=-1)
    cosines = (steps[..., 1:, :] * steps[..., :-1, :]).sum(-1)
    return cosines.clamp(-1, 1).acos().mean(-1)


def intrinsic_dimension(vectors: Tensor) -> float:
    """The intrinsic dimension of vectors (n, D) by TwoNN; NaN if fewer than two of them differ from all others.

    With mu the ratio of the distances to the second and to the first neighbour, -ln(1 - F(mu)) = d ln mu: d is the
    slope of the line through the origin, fitted to the 90 % smallest ratios, with F their empirical distribution.
    """
    near = [torch.cdist(part, vectors).topk(min(3, len(vectors)), largest=False).values for part in vectors.split(512)]
    distances = torch.cat(near)
    if distances.shape[1] < 3:
        return math.nan
    first, second = distances[:, 1], distances[:, 2]
    ratios = (second / first)[first > 0].log().sort().values
    kept = int(KEPT * len(ratios))
    if kept < 2 or not float(ratios[:kept].sum()):
        return math.nan
    x = ratios[:kept]
    y = -torch.log1p(-torch.arange(1, kept + 1, dtype=x.dtype) / len(ratios))
    return float((x @ y) / (x @ x))
