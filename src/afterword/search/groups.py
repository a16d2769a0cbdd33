"""Groups of vectors: near-duplicates among all pairs, and clusters by k-means of directions."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import InputError, MissingExtra, plural

Vectors = NDArray[np.float32]
Rows = NDArray[np.int64]

BLOCK = 2048  # rows of a block; its products with another block are 16 MiB
ROUNDING = 1e-6  # of a cosine in float32
TRIED = (2, 3, 5, 8, 12, 20, 30, 50)  # numbers of clusters that "auto" tries
SAMPLE = 5000  # rows whose silhouette is taken
PRIOR = 0.5  # added to the count of each word
WORD = re.compile("[\u3040-\u30ff\u3400-\u9fff]+|[^\\W\\d_]+")
"""A run of Chinese or Japanese characters, or of other letters."""


def unit(vectors: ArrayLike) -> Vectors:
    """Scale vectors (n, D) to length 1, in float32; a vector of zeros stays.

    Raises:
        InputError: they are not a table, or a row is NaN or infinite.

    >>> unit([[3, 4], [0, 0]]).round(3).tolist()
    [[0.6000000238418579, 0.800000011920929], [0.0, 0.0]]
    """
    scaled = np.array(vectors, np.float32)
    if scaled.ndim != 2:
        raise InputError(f"vectors have the shape (n, D), not {scaled.shape}")
    for start in range(0, len(scaled), BLOCK):
        part = scaled[start : start + BLOCK]
        lengths = np.linalg.norm(part.astype(np.float64), axis=1)
        if not np.isfinite(lengths).all():
            raise InputError(f"row {start + int(np.argmin(np.isfinite(lengths)))} of the vectors is not finite")
        part /= np.where(lengths > 0, lengths, 1)[:, None]
    return scaled


@dataclass(frozen=True)
class Duplicates:
    """Near-duplicates among n rows.

    Attributes:
        kept: (n,) for each row, the first row of its group; its own number where it is that row, or repeats none.
        cosines: (n,) the cosine with that row, rounded to six decimals; 1 where the row is kept. It may lie below the
            threshold where a row is like another that is like the kept one.
    """

    kept: Rows
    cosines: NDArray[np.float64]

    @property
    def repeats(self) -> Rows:
        """The rows that repeat an earlier one, in ascending order."""
        return np.flatnonzero(self.kept != np.arange(len(self.kept)))


def near_duplicates(vectors: ArrayLike, over: float, on_progress: Callable[[int], None] = lambda _: None) -> Duplicates:
    """Group rows by transitive closure: a row is in a group if its cosine with any row of it is at least ``over``.

    All pairs are compared, in float32. Memory holds one copy of the vectors and the products of two blocks.

    Args:
        vectors: (n, D), finite. A vector of zeros repeats none.
        over: the threshold, above 0 and at most 1; cosines are rounded up by 1e-6.
        on_progress: is called with the number of rows that were finished since its last call.

    Raises:
        InputError: the threshold is out of range, or the vectors are not a finite table.

    >>> near_duplicates([[1, 0], [0, 1], [2, 0.1]], 0.9).kept.tolist()
    [0, 1, 0]
    """
    check_threshold(over)
    scaled = unit(vectors)
    first = np.arange(len(scaled))
    for start in range(0, len(scaled), BLOCK):
        rows = scaled[start : start + BLOCK]
        for other in range(start, len(scaled), BLOCK):
            products = rows @ scaled[other : other + BLOCK].T
            near = products >= over - ROUNDING
            near &= first[start : start + BLOCK, None] != first[None, other : other + BLOCK]
            pairs = np.nonzero(near)
            first = joined(first, pairs[0] + start, pairs[1] + other)
        on_progress(len(rows))
    cosines = np.ones(len(scaled))
    repeats = np.flatnonzero(first != np.arange(len(scaled)))
    for start in range(0, len(repeats), BLOCK):
        part = repeats[start : start + BLOCK]
        cosines[part] = np.einsum("nd,nd->n", scaled[part], scaled[first[part]], dtype=np.float64)
    return Duplicates(first, np.clip(cosines.round(6), -1, 1))


def check_threshold(over: float) -> None:
    """Raise InputError for a threshold that is not above 0 and at most 1."""
    if not 0 < over <= 1:  # nan is neither
        raise InputError(f"the threshold is not a cosine above 0 and at most 1: {over}: give one such as 0.9")


def joined(first: Rows, rows: Rows, columns: Rows) -> Rows:
    """The groups after pairs of rows were joined: for each row (n,), the first row of its group.

    >>> joined(np.arange(5), np.array([3, 1]), np.array([4, 3])).tolist()
    [0, 1, 2, 1, 1]
    """
    if not len(rows):
        return first
    first = first.copy()
    a, b = first[rows], first[columns]
    pairs = np.unique(np.minimum(a, b) * len(first) + np.maximum(a, b))
    for low, high in zip(*(part.tolist() for part in np.divmod(pairs, len(first))), strict=True):
        x, y = _root(first, low), _root(first, high)
        first[max(x, y)] = min(x, y)
    while not np.array_equal(first, shorter := first[first]):
        first = shorter
    return first


def _root(first: Rows, row: int) -> int:
    while first[row] != row:
        first[row] = first[first[row]]
        row = int(first[row])
    return row


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
        InputError: k or the seed is out of range; the vectors are not a finite table, or fewer than k differ.
        MissingExtra: scikit-learn is not installed.

    >>> cluster([[1, 0], [0, 1], [0.1, 1], [0.2, 1]], 2).labels.tolist()
    [1, 0, 0, 0]
    """
    if not 0 <= seed < 2**32:
        raise InputError(f"seed {seed}: give a number from 0 to {2**32 - 1}")
    if k != "auto" and k < 2:
        raise InputError(f"{plural(k, 'cluster')}: give at least 2")
    rows = unit(vectors)
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
    nearness = np.einsum("nd,nd->n", rows, unit(centres)[labels])
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
