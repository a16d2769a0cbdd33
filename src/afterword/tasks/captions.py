"""Caption retrieval: with an image's first caption as the query, are its other captions retrieved?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError, MissingExtra
from .rows import Source, label, texts
from .task import Array, Embedder, Loaded, Scores, Task, embed

Indices = NDArray[np.int64]

CUTS = (1, 5, 10)
"""The k of recall@k and hit rate@k."""


@dataclass(frozen=True)
class CaptionRetrieval(Task):
    """An image's first caption as a query for its other captions (BeLLM, section 5.4, on flickr30k's test split).

    The captions of all images are searched, except for the query itself: in the paper's Table 5 the first caption of
    one image retrieves that of another. Strict accuracy is the share of images whose m other captions are the top m
    (the paper's top 4, of five captions each). Recall@k is the mean share of an image's other captions among the
    top k; hit rate@k is the share of images with at least one of them there.

    Attributes:
        file: name of the data set, with rows {"image", "captions"}.
    """

    file: str

    group: ClassVar[str] = "captions"
    metric: ClassVar[str] = "strict_accuracy"
    libraries: ClassVar[tuple[str, ...]] = ("faiss-cpu",)

    def files(self) -> Sequence[str]:
        """The one data set."""
        return (self.file,)

    def load(self, source: Source) -> Captions:
        """Read the captions.

        Raises:
            DataError: there is no such data set, it has fewer than two images, or an image occurs twice or has only
                one caption.
        """
        images = source.rows(self.file, {"image": _Unique().image, "captions": _captions})
        if len(images) < 2:
            raise DataError(f"{self.file} has one image: there is nothing to confuse its captions with")
        return Captions.concatenate([r["image"] for r in images], [r["captions"] for r in images])


@dataclass
class _Unique:
    """Checks that no image occurs twice."""

    names: set[str] = field(default_factory=set)

    def image(self, value: Any) -> str:
        name = label(value)
        if name in self.names:
            raise ValueError(f"is {name!r:.60}, which was there before: give an image all its captions in one row")
        self.names.add(name)
        return name


def _captions(value: Any) -> list[str]:
    sentences = texts(value)
    if len(sentences) < 2:
        raise ValueError(f"has one sentence, {sentences[0]!r:.40}: the first caption looks for the others")
    return sentences


@dataclass(frozen=True)
class Captions(Loaded):
    """Captions in memory.

    Attributes:
        images: names of the images.
        sentences: n captions, ordered by image.
        image: for each caption, the index of its image (n,).
        first: for each image, the index of its first caption.
    """

    images: Sequence[str]
    sentences: Sequence[str]
    image: Indices
    first: Indices

    @classmethod
    def concatenate(cls, images: Sequence[str], captions: Sequence[Sequence[str]]) -> Captions:
        """Concatenate the captions of all images."""
        counts = np.array([len(c) for c in captions])
        image = np.repeat(np.arange(len(images)), counts)
        return cls(images, [s for c in captions for s in c], image, np.cumsum(counts) - counts)

    def texts(self) -> Sequence[str]:
        """All captions."""
        return self.sentences

    def score(self, embedder: Embedder, seed: int) -> Scores:
        """Embed all captions, retrieve, and compute the metrics; the seed is not used.

        Raises:
            MissingExtra: faiss is not installed.
        """
        vectors = embed(embedder, self.sentences)
        if reason := _useless(vectors):
            names = [f"{score}_at_{k}" for score in ("recall", "hit_rate") for k in CUTS]
            return Scores(math.nan, dict.fromkeys(["strict_accuracy", *names], math.nan), notes=(reason,))
        others = np.bincount(self.image) - 1
        nearest = retrieve(vectors, self.first, max(*CUTS, int(others.max())))
        hits = self.image[nearest] == np.arange(len(others))[:, None]
        correct = np.array([row[:m].all() for row, m in zip(hits, others, strict=True)], np.float64)
        metrics = {"strict_accuracy": float(correct.mean())}
        metrics |= {f"recall_at_{k}": float((hits[:, :k].sum(1) / others).mean()) for k in CUTS}
        metrics |= {f"hit_rate_at_{k}": float(hits[:, :k].any(1).mean()) for k in CUTS}
        return Scores(metrics["strict_accuracy"], metrics, {"correct": correct})


def retrieve(vectors: Array, queries: Indices, k: int) -> Indices:
    """Exact nearest neighbours by cosine (faiss, ``IndexFlatIP``), without the query itself.

    Args:
        vectors: finite vectors (n, D).
        queries: indices of those that are queries (q,).
        k: number of neighbours.

    Returns:
        Indices (q, min(k, n - 1)), the nearest first.

    Raises:
        MissingExtra: faiss is not installed.
    """
    try:
        import faiss
    except ImportError:
        raise MissingExtra("faiss", "evaluate") from None
    rows = np.array(vectors, np.float32, order="C")
    faiss.normalize_L2(rows)
    index = faiss.IndexFlatIP(rows.shape[1])
    index.add(rows)
    k = min(k, len(rows) - 1)
    _, nearest = index.search(rows[queries], k + 1)
    # an equal caption may come before the query, or replace it among the k + 1
    return np.stack([row[row != query][:k] for row, query in zip(nearest, queries, strict=True)])


def _useless(vectors: Array) -> str | None:
    if not np.isfinite(vectors).all():
        return "a caption's vector is not finite: nothing can be retrieved"
    if not np.ptp(vectors, axis=0).any():
        return "all captions have one vector: nothing can be retrieved"
    return None


TASKS: tuple[Task, ...] = (CaptionRetrieval("Flickr30k", "en/flickr30k/captions.test"),)
