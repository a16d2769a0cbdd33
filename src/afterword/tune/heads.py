"""Ditto's search: the map of heads, by labels and without."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..encode.limits import Limits
from ..encoder import Encoder
from ..tasks.scores import spearman, spearmans
from ..text.layout import Layout
from .head_correlation import correlate_heads
from .tuning import Tuned, prompted

Array = NDArray[np.floating[Any]]
Head = tuple[int, int]


@dataclass(frozen=True)
class HeadMap:
    """Every head's score on the first and last states, and its correlation with tf-idf.

    Attributes:
        correlation: of its diagonal with tf-idf, the mean over texts (L, H).
        scores: Spearman on all pairs (L, H); None without labels.
    """

    correlation: Array
    scores: Array | None = None

    @property
    def label_free(self) -> Head:
        """The head that tf-idf chooses (layer, head), from 0."""
        return _highest(self.correlation)

    @property
    def best(self) -> Head:
        """The head that labels choose."""
        return _highest(self._scores)

    @property
    def place(self) -> int:
        """Where labels place the head that tf-idf chooses, from 1."""
        return int((self._scores > self._scores[self.label_free]).sum()) + 1

    @property
    def agreement(self) -> float:
        """Spearman's correlation, over heads, of scores and correlations with tf-idf."""
        if self._scores.size < 2:
            return math.nan
        return spearman(self._scores.ravel(), self.correlation.ravel())

    @property
    def _scores(self) -> Array:
        assert self.scores is not None
        return self.scores


def spelled_head(head: Head) -> str:
    """A head from 1, as in the paper.

    >>> spelled_head((0, 9))
    '1-10'
    """
    return f"{head[0] + 1}-{head[1] + 1}"


def _highest(table: Array) -> Head:
    layer, head = np.unravel_index(int(np.argmax(np.nan_to_num(table, nan=-2))), table.shape)
    return int(layer), int(head)


def head_map(tuned: Tuned) -> HeadMap | None:
    """The map, where heads were read."""
    if tuned.correlation is None:
        return None
    where = [i for i, r in enumerate(tuned.recipes) if r.of_ditto and r.method.states.kind == "first_last"]
    return HeadMap(tuned.correlation, spearmans(tuned.cosines[where], tuned.gold).reshape(tuned.correlation.shape))


def label_free(
    encoder: Encoder, texts: Sequence[str], limits: Limits | None = None, told: Callable[[int], object] = lambda _: None
) -> HeadMap:
    """The map without labels: Ditto chooses its head by labelled pairs and names other ways as future work.

    Source: Ditto, Limitations; its Table 4 has the correlation of heads with tf-idf.

    Args:
        encoder: any of the model.
        texts: some hundreds.
        limits: how much at a time.
        told: hears how many more texts are done.

    Raises:
        InputError: too few texts, or one that holds no token.
        AttentionNotSeen: the model does not show its attention.

    >>> heads = label_free(Encoder.load("afterword-mini", "classical"), ["the cat sat", "the dog ran off"])
    >>> heads.correlation.shape
    (6, 8)
    """
    limits = limits or Limits(encoder.max_length)
    found = correlate_heads(encoder.backbone, texts, limits, prompted(encoder, Layout()), told)
    return HeadMap(found.numpy())
