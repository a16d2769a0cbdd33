"""Clusters of vectors by k-means of directions, with a number of clusters that is given or chosen by silhouette."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import InputError, MissingExtra, plural
from .unit_vectors import Vectors, checked, unit

Rows = NDArray[np.int64]

TRIED = (2, 3, 5, 8, 12, 20, 30, 50)  # numbers of clusters that "auto" tries
SAMPLE = 5000  # rows whose silhouette is taken
PRIOR = 0.5  # added to the count of each word
WORD = re.compile("[\u3040-\u30ff\u3400-\u9fff]+|[^\\W\\d_]+")
"""A run of Chinese or Japanese characters, or of other letters."""


@dataclass(frozen=True)
class Clusters:
    """The clusters of n rows, numbered from 0 by falling size; of equal sizes that with the earlier row is first.

    Attributes:
        labels: (n,) the cluster of each row.
        nearness: (n,) the cosine of each row with the centre of its cluster.
        scores: by number of clusters, the silhouette that it got; empty unless the number was chosen.
    """

    labels: Rows
    nearness: NDArray[np.float32]
    scores: Mapping[int, float] = field(default_factory=dict)

    @property
    def sizes(self) -> Rows:
        """The number of rows of each cluster."""
        return np.bincount(self.labels)

    def nearest(self, label: int, most: int = 5) -> Rows:
        """The rows of a cluster that are nearest to its centre, the nearest first."""
        rows = np.flatnonzero(self.labels == label)
        return rows[np.argsort(-self.nearness[rows], kind="stable")[:most]]


def cluster(vectors: ArrayLike, k: int | Literal["auto"], seed: int = 0) -> Clusters:
    """Sort rows into k clusters by scikit-learn's MiniBatchKMeans on vectors of length 1.

    The same seed gives the same labels on one machine. Clusters that end without a row are left out.

    Args:
        vectors: (n, D), finite.
        k: the number of clusters, at least 2; "auto" takes the one of 2, 3, 5, 8, 12, 20, 30 and 50 with the best
            silhouette on 5,000 rows, of equal ones the smallest.
        seed: of the random choices, at least 0.

    Raises:
        InputError: k or the seed is out of range; the vectors are no finite table, or fewer than k are different.
        MissingExtra: scikit-learn is not installed.

    >>> cluster([[1, 0], [0, 1], [0.1, 1], [0.2, 1]], 2).labels.tolist()
    [1, 0, 0, 0]
    """
    if not 0 <= seed < 2**32:
        raise InputError(f"seed {seed}: give a number from 0 to {2**32 - 1}")
    if k != "auto" and k < 2:
        raise InputError(f"{plural(k, 'cluster')}: give at least 2")
    rows = unit(checked(vectors))
    different = len({row.tobytes() for row in rows})
    if different < (3 if k == "auto" else k):
        least = "to choose their number, 3 are needed" if k == "auto" else f"{k} clusters need {k}"
        raise InputError(f"{plural(different, 'different vector')}: {least}")
    if k != "auto":
        return _numbered(rows, *_fitted(rows, k, seed), {})
    fitted = {one: _fitted(rows, one, seed) for one in TRIED if one < different}
    scores = {one: _silhouette(rows, labels, seed) for one, (labels, _) in fitted.items()}
    best = max(scores, key=lambda one: (scores[one], -one))
    return _numbered(rows, *fitted[best], scores)


def _fitted(rows: Vectors, k: int, seed: int) -> tuple[Rows, Vectors]:
    """Labels (n,) and centres (k, D)."""
    try:
        from sklearn.cluster import MiniBatchKMeans
    except ImportError:
        raise MissingExtra("scikit-learn", "cluster") from None
    model: Any = MiniBatchKMeans(k, random_state=seed, n_init=3, batch_size=1024).fit(rows)
    return model.labels_.astype(np.int64), model.cluster_centers_


def _silhouette(rows: Vectors, labels: Rows, seed: int) -> float:
    """The mean silhouette of at most `SAMPLE` rows; -1, the worst, if all are in one cluster or each in its own."""
    from sklearn.metrics import silhouette_score

    chosen = np.sort(np.random.default_rng(seed).permutation(len(rows))[:SAMPLE])
    if not 1 < len(np.unique(labels[chosen])) < len(chosen):
        return -1.0
    return float(silhouette_score(rows[chosen], labels[chosen]))


def _numbered(rows: Vectors, labels: Rows, centres: Vectors, scores: Mapping[int, float]) -> Clusters:
    """The clusters, renumbered by size."""
    found, first, index, sizes = np.unique(labels, return_index=True, return_inverse=True, return_counts=True)
    order = np.lexsort((first, -sizes))
    number = np.empty(len(found), np.int64)
    number[order] = np.arange(len(found))
    nearness = np.einsum("nd,nd->n", rows, unit(checked(centres))[labels])
    return Clusters(number[index], nearness, scores)


def words_of(text: str) -> list[str]:
    """The words of a text in lower case; in Chinese and Japanese, pairs of characters.

    >>> words_of("The bank's 银行家")
    ['the', 'bank', 's', '银行', '行家']
    """
    words: list[str] = []
    for word in WORD.findall(text.casefold()):
        paired = word[0] >= "\u3040" and len(word) > 2
        words += [word[i : i + 2] for i in range(len(word) - 1)] if paired else [word]
    return words


def distinctive_words(labelled: Iterable[tuple[int, str]], clusters: int, most: int = 4) -> list[list[str]]:
    """The words by which each cluster differs most from the others.

    Ranks words by the z-score of their log odds ratio, with the number of texts that hold a word as its count
    (B. L. Monroe et al., Fightin' Words, Political Analysis 16(4), 2008, equations 15 to 22, an uninformative prior).

    Args:
        labelled: the cluster and the text of each row.
        clusters: the number of clusters.
        most: words of a cluster.

    Returns:
        For each cluster at most this many words, the most distinctive first. Each is in two of its texts or more, has
        two characters or more, and is not one of scikit-learn's English stop words.

    >>> distinctive_words([(0, "the river"), (0, "a river"), (1, "the rates"), (1, "rates rose")], 2)
    [['river'], ['rates']]
    """
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    counts: list[Counter[str]] = [Counter() for _ in range(clusters)]
    for label, text in labelled:
        counts[label].update(set(words_of(text)))
    every = sum(counts, Counter[str]())
    total, prior = every.total(), PRIOR * len(every)

    def score(word: str, here: Counter[str], size: int) -> float:
        y, other = here[word] + PRIOR, every[word] - here[word] + PRIOR
        odds = math.log(y / (size + prior - y)) - math.log(other / (total - size + prior - other))
        return odds / math.sqrt(1 / y + 1 / other)

    named = []
    for here in counts:
        size = here.total()
        scores = {
            word: score(word, here, size)
            for word, n in here.items()
            if n > 1 and len(word) > 1 and word not in ENGLISH_STOP_WORDS
        }
        best = sorted(scores, key=lambda word: (-scores[word], word))
        named.append([word for word in best if scores[word] > 0][:most])
    return named
