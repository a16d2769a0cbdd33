"""How evenly an encoder's vectors lie around the origin: average cosine, uniformity, and alignment of positive pairs.

Source: Ditto, section 4 (Table 5: the average cosine of 1,000 sentences of Wikipedia; Figure 4: alignment and
uniformity by the tool of SimCSE); BeLLM, appendix A: equation 7 splits the contrastive loss into alignment and
uniformity after Wang & Isola 2020, and equation 8 leaves uniformity.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..encode.similarity import unit
from ..errors import InputError
from ..tasks.pairs import ScoredPairs
from ..tasks.task import Embedder, embed
from .figure import printable
from .measurement import Measurement

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Pair = tuple[str, str]
Vectors = NDArray[np.floating[Any]]
"""Vectors (n, D)."""

BLOCK = 1024  # number of vectors per block of a pairwise comparison


@dataclass(frozen=True)
class Isotropy(Measurement):
    """The geometry of an encoder's vectors.

    Attributes:
        name: of the encoder.
        average_cosine: mean cosine of two different texts; near 0 is isotropic.
        uniformity: log of the mean of exp(-2 d^2) over pairs of texts; lower is more uniform.
        alignment: mean squared distance of positive pairs; lower is closer. NaN without pairs.
        texts: number of texts.
        positives: number of positive pairs.
    """

    name: str
    average_cosine: float
    uniformity: float
    alignment: float
    texts: int
    positives: int


def positive_pairs(pairs: ScoredPairs, above: float = 4.0) -> list[Pair]:
    """The pairs that count as positive: those with a score above 4 of 5.

    Source: Gao et al. 2021 (SimCSE), section 3, on STS-B; Ditto's section 4 uses its tool.

    Raises:
        InputError: no pair has such a score.
    """
    chosen = [(a, b) for a, b, score in zip(pairs.left, pairs.right, pairs.gold, strict=True) if score > above]
    if not chosen:
        highest = pairs.gold.max()
        raise InputError(f"no pair has a score above {above:g}, the highest is {highest:g}: lower above={above:g}")
    return chosen


def isotropy(embedder: Embedder, texts: Sequence[str], positives: Sequence[Pair] = (), *, name: str = "") -> Isotropy:
    """Measure the vectors of an encoder.

    Args:
        embedder: an `Encoder`, or anything else with its `encode`.
        texts: at least two different texts, over which average cosine and uniformity are computed; equal ones count
            once.
        positives: pairs of texts with one meaning.
        name: the name of the encoder in results.

    Raises:
        InputError: there are too few texts, or a vector is zero, NaN or infinite.
    """
    unique = list(dict.fromkeys(texts))
    if len(unique) < 2:
        raise InputError(f"{len(unique)} text has no cosine with another: give at least 2 different ones")
    vectors = embed(embedder, unique)
    aligned = math.nan
    if positives:
        left, right = (embed(embedder, side) for side in zip(*positives, strict=True))
        aligned = alignment(left, right)
    return Isotropy(name, average_cosine(vectors), uniformity(vectors), aligned, len(unique), len(positives))


def plot(axes: Axes, results: Sequence[Isotropy]) -> None:
    """Draw alignment over uniformity, a point per encoder, as in Figure 4 of Ditto. Lower is better on both axes.

    Args:
        axes: the axes to draw on.
        results: results with positive pairs, at least one.
    """
    for r in results:
        axes.plot(r.uniformity, r.alignment, linestyle="", markersize=7, label=printable(r.name))
    axes.margins(0.15)
    axes.set(xlabel="uniformity: log mean exp(−2 d²)", ylabel="alignment: mean d² of positive pairs")
    axes.legend()


def average_cosine(vectors: Vectors) -> float:
    """The mean cosine of two different vectors: near 0 for random directions, near 1 in a narrow cone (anisotropy).

    Source: Ethayarajh 2019; Ditto, section 4. Computed in O(n D): the squared length of the sum of unit vectors is n
    plus the sum of the cosines of all ordered pairs.

    Args:
        vectors: (n, D), n >= 2.

    Raises:
        InputError: there are too few vectors, or one is zero, NaN or infinite.

    >>> average_cosine(np.array([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]]))
    0.3333333333333333
    """
    n = len(_matrix(vectors, 2))
    total = sum(_unit(vectors, i).sum(0) for i in range(0, n, BLOCK))
    return float((total @ total - n) / (n * (n - 1)))


def alignment(first: Vectors, second: Vectors, alpha: float = 2.0) -> float:
    """The mean of the distance to the power alpha between the unit vectors of positive pairs; lower is closer.

    Source: Wang & Isola 2020, section 4.1.1. For sentences, positive pairs are those with a similarity score above 4
    of 5 (Gao et al. 2021, SimCSE; Ditto, section 4).

    Args:
        first, second: (n, D); rows of equal index are a pair.
        alpha: the exponent.

    Raises:
        InputError: as `average_cosine`, or their shapes differ.

    >>> alignment(np.array([[1.0, 0.0], [0.0, 2.0]]), np.array([[5.0, 0.0], [1.0, 0.0]]))
    1.0
    """
    if _matrix(first, 1).shape != _matrix(second, 1).shape:
        raise InputError(f"pairs of the shapes {first.shape} and {second.shape}: give as many of either")
    starts = range(0, len(first), BLOCK)
    return float(sum((_squared(first, second, i) ** (alpha / 2)).sum() for i in starts) / len(first))


def uniformity(vectors: Vectors, t: float = 2.0) -> float:
    """log of the mean of exp(-t d^2) over pairs of unit vectors with distance d; lower is more uniform.

    Source: Wang & Isola 2020, section 4.1.2. Computed in blocks: time O(n^2 D), memory O(n).

    Args:
        vectors: (n, D), n >= 2.
        t: the factor t; the larger, the less distant pairs count.

    Raises:
        InputError: as `average_cosine`.

    >>> round(uniformity(np.array([[1.0, 0.0], [0.0, 3.0]])), 12)
    -4.0
    """
    n, total = len(_matrix(vectors, 2)), 0.0
    for i in range(0, n, BLOCK):
        rows = _unit(vectors, i)
        for j in range(0, i + 1, BLOCK):
            # exp(-t (2 - 2 cos)); rounding may give a cosine over 1, which no distance has
            pairs = np.exp(2 * t * (np.minimum(rows @ _unit(vectors, j).T, 1) - 1))
            total += float(np.tril(pairs, -1).sum() if i == j else pairs.sum())
    return float(np.log(total / (n * (n - 1) / 2)))


def _squared(first: Vectors, second: Vectors, start: int) -> Vectors:
    """Squared distances of pairs of unit vectors, for the block at `start`."""
    squared: Vectors = ((_unit(first, start) - _unit(second, start)) ** 2).sum(1)
    return squared


def _matrix(vectors: Vectors, least: int) -> Vectors:
    if vectors.ndim != 2 or len(vectors) < least:
        raise InputError(f"vectors of the shape {vectors.shape}: give (n, D) with n of at least {least}")
    return vectors


def _unit(vectors: Vectors, start: int) -> Vectors:
    """The block of vectors at `start`, scaled to length 1, in float64."""
    block = np.asarray(vectors[start : start + BLOCK], np.float64)
    lengths = np.linalg.norm(block, axis=1, keepdims=True)
    wrong = np.flatnonzero(~(np.isfinite(lengths) & (lengths > 0)))
    if len(wrong):
        what = "has length 0" if lengths[wrong[0]] == 0 else "is not finite"
        raise InputError(f"vector {start + wrong[0]} {what}: it points nowhere")
    return unit(block)
