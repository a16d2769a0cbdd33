"""Caption retrieval: does an image's first caption find its other captions?"""

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
"""The k of recall and hit rate."""


@dataclass(frozen=True)
class CaptionRetrieval(Task):
    """An image's first caption as a query for its other captions (BeLLM, section 5.4, on flickr30k's test split).

    Candidates are all captions of all images but the query itself: in the paper's Table 5 the first caption of one
    image is found by that of another. Strict accuracy counts an image whose m other captions are the top m (the
    paper's top 4, of five captions each). Recall@k is the mean share of an image's other captions among the top k;
    the hit rate@k that of images with one of them there.

    Attributes:
        file: its data set, of rows {"image", "captions"}.
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
            DataError: no such data set, fewer than two images, one that is there twice or has one caption only.
        """
        images = source.rows(self.file, {"image": _Once().image, "captions": _captions})
        if len(images) < 2:
            raise DataError(f"{self.file} has one image: there is nothing to confuse its captions with")
        return Captions.of([r["image"] for r in images], [r["captions"] for r in images])


@dataclass
class _Once:
    """Checks that no image is there twice."""

    seen: set[str] = field(default_factory=set)

    def image(self, value: Any) -> str:
        found = label(value)
        if found in self.seen:
            raise ValueError(f"is {found!r:.60}, which was there before: give an image all its captions in one row")
        self.seen.add(found)
        return found


def _captions(value: Any) -> list[str]:
    found = texts(value)
    if len(found) < 2:
        raise ValueError(f"has one sentence, {found[0]!r:.40}: the first caption looks for the others")
    return found


@dataclass(frozen=True)
class Captions(Loaded):
    """Captions in memory.

    Attributes:
        images: their names.
        sentences: n captions, image after image.
        image: per caption, the index of its image (n,).
        first: per image, the index of its first caption.
    """

    images: Sequence[str]
    sentences: Sequence[str]
    image: Indices
    first: Indices

    @classmethod
    def of(cls, images: Sequence[str], captions: Sequence[Sequence[str]]) -> Captions:
        """Lay the captions of all images end to end."""
        counts = np.array([len(c) for c in captions])
        image = np.repeat(np.arange(len(images)), counts)
        return cls(images, [s for c in captions for s in c], image, np.cumsum(counts) - counts)

    def texts(self) -> Sequence[str]:
        """All captions."""
        return self.sentences

    def score(self, embedder: Embedder, seed: int) -> Scores:
        """Embed, retrieve, count; the seed is not used.

        Raises:
            MissingExtra: faiss is not installed.
        """
        vectors = embed(embedder, self.sentences)
        if reason := _useless(vectors):
            names = [f"{score}_at_{k}" for score in ("recall", "hit_rate") for k in CUTS]
            return Scores(math.nan, dict.fromkeys(["strict_accuracy", *names], math.nan), notes=(reason,))
        others = np.bincount(self.image) - 1
        found = retrieve(vectors, self.first, max(*CUTS, int(others.max())))
        hits = self.image[found] == np.arange(len(others))[:, None]
        correct = np.array([row[:m].all() for row, m in zip(hits, others, strict=True)], np.float64)
        metrics = {"strict_accuracy": float(correct.mean())}
        metrics |= {f"recall_at_{k}": float((hits[:, :k].sum(1) / others).mean()) for k in CUTS}
        metrics |= {f"hit_rate_at_{k}": float(hits[:, :k].any(1).mean()) for k in CUTS}
        return Scores(metrics["strict_accuracy"], metrics, {"correct": correct})


def retrieve(vectors: Array, queries: Indices, k: int) -> Indices:
    """The nearest others of some vectors, by cosine, exactly (faiss, ``IndexFlatIP``).

    Args:
        vectors: (n, D), finite.
        queries: which of them are queries (q,).
        k: how many to find of each.

    Returns:
        Indices (q, min(k, n - 1)), the nearest first, never the query itself.

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
    _, found = index.search(rows[queries], k + 1)
    # a caption that is there twice may stand in front of the query, or push it out
    return np.stack([row[row != query][:k] for row, query in zip(found, queries, strict=True)])


def _useless(vectors: Array) -> str | None:
    if not np.isfinite(vectors).all():
        return "a caption's vector is not finite: nothing can be retrieved"
    if not np.ptp(vectors, axis=0).any():
        return "all captions have one vector: nothing can be retrieved"
    return None


TASKS: tuple[Task, ...] = (CaptionRetrieval("Flickr30k", "en/flickr30k/captions.test"),)
