"""How evenly an encoder's vectors lie around the origin: average cosine, uniformity, and alignment of positive pairs.

Source: Ditto, section 4 (Table 5: the average cosine of 1,000 sentences of Wikipedia; Figure 4: alignment and
uniformity by the tool of SimCSE); BeLLM, appendix A: equation 7 splits the contrastive loss into alignment and
uniformity after Wang & Isola 2020, and equation 8 leaves uniformity. The formulas are in `geometry`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import InputError
from ..tasks.pairs import ScoredPairs
from ..tasks.task import Embedder, embed
from .geometry import alignment, average_cosine, uniformity
from .result import Measurement

Pair = tuple[str, str]


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
