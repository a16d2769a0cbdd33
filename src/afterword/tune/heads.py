"""Scores of all attention heads for Ditto: on labelled pairs, and without labels by their correlation with TF-IDF."""

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
from .tuning import Tuned, with_default_prompt

Array = NDArray[np.floating[Any]]
Head = tuple[int, int]


@dataclass(frozen=True)
class HeadMap:
    """For every head, Ditto's score on the states "first_last" and the correlation of its diagonal with TF-IDF.

    Attributes:
        correlation: of the diagonal with TF-IDF, averaged over texts (L, H).
        scores: Spearman's correlation on all pairs (L, H); None without labels.
    """

    correlation: Array
    scores: Array | None = None

    @property
    def label_free(self) -> Head:
        """The head with the highest correlation with TF-IDF, as (layer, head) from 0."""
        return _highest(self.correlation)

    @property
    def best(self) -> Head:
        """The head with the highest score, as (layer, head) from 0."""
        return _highest(self._scores)

    @property
    def place(self) -> int:
        """The rank of the `label_free` head by score, from 1."""
        return int((self._scores > self._scores[self.label_free]).sum()) + 1

    @property
    def agreement(self) -> float:
        """Spearman's correlation over all heads between their scores and their correlations with TF-IDF."""
        if self._scores.size < 2:
            return math.nan
        return spearman(self._scores.ravel(), self.correlation.ravel())

    @property
    def _scores(self) -> Array:
        assert self.scores is not None
        return self.scores


def spelled_head(head: Head) -> str:
    """A head as ``layer-head`` from 1, as in the paper.

    >>> spelled_head((0, 9))
    '1-10'
    """
    return f"{head[0] + 1}-{head[1] + 1}"


def _highest(table: Array) -> Head:
    layer, head = np.unravel_index(int(np.argmax(np.nan_to_num(table, nan=-2))), table.shape)
    return int(layer), int(head)


def head_map(tuned: Tuned) -> HeadMap | None:
    """The map of heads from a tuning run; None if it did not try Ditto."""
    if tuned.correlation is None:
        return None
    where = [i for i, r in enumerate(tuned.recipes) if r.is_ditto and r.method.members[0].states.kind == "first_last"]
    return HeadMap(tuned.correlation, spearmans(tuned.cosines[where], tuned.gold).reshape(tuned.correlation.shape))


def label_free(
    encoder: Encoder,
    texts: Sequence[str],
    limits: Limits | None = None,
    on_progress: Callable[[int], object] = lambda _: None,
) -> HeadMap:
    """The map of heads from texts without labels, by their correlation with TF-IDF.

    Source: Ditto chooses its head on labelled pairs and names other ways as future work (Limitations); its Table 4
    has the correlation of heads with TF-IDF.

    Args:
        encoder: an encoder of the model; its method is not used.
        texts: some hundreds.
        limits: batch size and maximum length.
        on_progress: called with the number of texts that were just finished.

    Raises:
        InputError: there are too few texts, or one has no token.
        AttentionNotSeen: the model's attention weights cannot be read.

    >>> heads = label_free(Encoder.load("afterword-mini", "classical"), ["the cat sat", "the dog ran off"])
    >>> heads.correlation.shape
    (6, 8)
    """
    limits = limits or Limits(encoder.max_length)
    layout = with_default_prompt(encoder, Layout())
    return HeadMap(correlate_heads(encoder.backbone, texts, limits, layout, on_progress).numpy())
