"""Pairs of texts with human similarity scores: the correlation between scores and similarities of vectors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError, MissingDataset
from ..files.read import ENDINGS
from .rows import Folder, Source, number, text
from .scores import cosines, pearson, spearman
from .task import Embedder, Loaded, Scores, Task, as_read, embed

Array = NDArray[np.floating[Any]]

SIMILARITIES: dict[str, Callable[[Array, Array], Array]] = {
    "cosine": cosines,
    "dot": lambda a, b: (a * b).sum(1, dtype=np.float64),
    "euclidean": lambda a, b: -np.sqrt(np.square(a - b).sum(1, dtype=np.float64)),
    "manhattan": lambda a, b: -np.abs(a - b).sum(1, dtype=np.float64),
}
"""Functions of ``a`` and ``b`` (n, D each) that compare rows of equal index, to (n,); larger is more similar."""

SAME = 1e-12
"""Cosines that differ by less are equal: those of float32 vectors of one direction differ by about 1e-15."""


@dataclass(frozen=True)
class Pairs(Task):
    """A file of scored pairs: rows with "sentence1", "sentence2", "score" and optionally "subset".

    The main score is SentEval's "all": one Spearman correlation over the pairs of all subsets together (SimCSE,
    appendix B; princeton-nlp/SimCSE@7edb07e, SentEval/senteval/sts.py). The other metrics are Pearson's correlation,
    the mean over subsets, the mean weighted by their numbers of pairs, each subset's own, and Spearman's correlation
    with three other similarities.

    Preprocessing of texts, such as BeLLM's full stop at the end, belongs to the method: `Layout.punctuate`.

    Args:
        file: name of the data set, as in "en/sts/sts12.test", or a file with its ending, as in "mine/pairs.jsonl".
    """

    file: str

    group = "pairs"
    metric = "cosine_spearman"

    def files(self) -> Sequence[str]:
        """The one file."""
        return (self.file,)

    def load(self, source: Source) -> ScoredPairs:
        """Read the pairs.

        Raises:
            DataError: there is no such file, it has fewer than two pairs, or a score is not a number.
        """
        pairs = _pairs(self.file, source)
        if len(pairs.gold) < 2:
            raise DataError(f"{self.file} has {len(pairs.gold)} pair: a correlation needs at least 2")
        return pairs


@dataclass(frozen=True)
class ScoredPairs(Loaded):
    """n scored pairs.

    Args:
        left: the first texts.
        right: the second texts.
        gold: scores (n,).
        subsets: the name of each pair's subset; "" without.
        notes: remarks for the reader of the scores.
    """

    left: tuple[str, ...]
    right: tuple[str, ...]
    gold: Array
    subsets: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def texts(self) -> Sequence[str]:
        """All texts, with "." for blank ones."""
        return [as_read(t) for t in (*self.left, *self.right)]

    def score(self, embedder: Embedder, seed: int) -> Scores:
        """Score an encoder; the seed is not used."""
        vectors = embed(embedder, (*self.left, *self.right))
        scores = score_pairs(vectors[: len(self.left)], vectors[len(self.left) :], self.gold, self.subsets)
        return replace(scores, notes=(*self.notes, *scores.notes))


def score_pairs(a: Array, b: Array, gold: Array, subsets: Sequence[str] = ()) -> Scores:
    """Correlations between the similarities of vectors and scores.

    Args:
        a: vectors of the first texts (n, D).
        b: vectors of the second texts (n, D).
        gold: scores (n,).
        subsets: n names; if they are not all equal, each subset is scored too.

    Returns:
        The correlations. They are NaN if the similarities or the scores are constant, or a vector is NaN or infinite;
        a note gives the reason.
    """
    similarities = {name: similar(a, b) for name, similar in SIMILARITIES.items()}
    cosine = similarities["cosine"]
    if np.ptp(cosine) < SAME:
        cosine = np.full_like(cosine, cosine[0])
    metrics: dict[str, Any] = {"cosine_spearman": spearman(cosine, gold), "cosine_pearson": pearson(cosine, gold)}
    metrics |= {f"{name}_spearman": spearman(similarities[name], gold) for name in ("dot", "euclidean", "manhattan")}
    names = list(dict.fromkeys(subsets))
    if len(names) > 1:
        metrics |= _by_subset(cosine, gold, {name: np.array([s == name for s in subsets]) for name in names})
    return Scores(
        metrics["cosine_spearman"], metrics, {"gold": gold, "similarity": cosine}, tuple(_undefined(cosine, gold))
    )


def _by_subset(cosine: Array, gold: Array, members: dict[str, NDArray[np.bool_]]) -> dict[str, Any]:
    counts = {name: int(at.sum()) for name, at in members.items()}
    metrics: dict[str, Any] = {"pairs_by_subset": counts}
    for name, correlation in {"cosine_spearman": spearman, "cosine_pearson": pearson}.items():
        each = {
            subset: correlation(cosine[at], gold[at]) if counts[subset] > 1 else math.nan
            for subset, at in members.items()
        }
        values, weights = list(each.values()), list(counts.values())
        metrics[f"{name}_mean"] = float(np.mean(values))
        metrics[f"{name}_weighted_mean"] = float(np.average(values, weights=weights))
        metrics[f"{name}_by_subset"] = each
    return metrics


def _undefined(similarity: Array, gold: Array) -> list[str]:
    """A note why the correlation is undefined; none if it is defined."""
    if not np.isfinite(similarity).all():
        bad = int((~np.isfinite(similarity)).sum())
        return [f"undefined: {bad} of {len(similarity)} similarities are not finite numbers"]
    if np.ptp(similarity) == 0:
        return [f"undefined: all {len(similarity)} similarities are {similarity[0]:.6g}"]
    if np.ptp(gold) == 0:
        return [f"undefined: all {len(gold)} gold scores are {gold[0]:.6g}"]
    return []


def own_file(task: Task, source: Source) -> Path | None:
    """The user's own file that a task reads; None for a task with a data set of its own."""
    own = type(task) is Pairs and isinstance(source, Folder) and task.file.endswith(ENDINGS)
    return source.root / task.file if own else None  # type: ignore[attr-defined]


def read_pairs(path: str | Path, *, correlated: bool = True) -> ScoredPairs:
    """Read scored pairs from a file of rows with "sentence1", "sentence2" and "score".

    Args:
        path: the file.
        correlated: whether a correlation will be computed, which needs two pairs.

    Raises:
        DataError: the file is missing or invalid; the message names file and line.
    """
    if not Path(path).is_file():
        raise MissingDataset(f"{path} does not exist: give a file of sentence1, sentence2 and score")
    if correlated:
        return Pairs(Path(path).name, str(path)).load(Folder(Path()))
    return _pairs(str(path), Folder(Path()))


def _pairs(file: str, source: Source) -> ScoredPairs:
    rows = source.rows(file, {"sentence1": text, "sentence2": text, "score": number}, {"subset": text})
    return ScoredPairs(
        tuple(r["sentence1"] for r in rows),
        tuple(r["sentence2"] for r in rows),
        np.array([r["score"] for r in rows]),
        tuple(r["subset"] or "" for r in rows),
    )
