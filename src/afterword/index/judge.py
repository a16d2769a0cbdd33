"""Judge an index by queries and judgements of one's own: nDCG, recall and MRR of each way of searching."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError
from .find import Asked, By, find
from .index import Index
from .judgements import Judgements
from .rows import batches

CUT = 10
WAYS: tuple[By, ...] = ("hybrid", "vector", "text")

Metric = Callable[[Sequence[str], Mapping[str, float]], float]


@dataclass(frozen=True)
class Judged:
    """How well one way of searching finds what was judged relevant: means over the queries, between 0 and 1.

    Attributes:
        by: the way of searching.
        ndcg: nDCG@10.
        recall: recall@10.
        mrr: MRR@10.
    """

    by: By
    ndcg: float
    recall: float
    mrr: float


@dataclass(frozen=True)
class JudgedQueries:
    """What an index is judged by.

    Attributes:
        queries: the texts of the queries with a relevant document, by their ids.
        judgements: their judgements.
        unjudged: the number of queries without a judgement.
        barren: the number of queries whose judgements name no relevant document; these are left out too.
        absent: the judged documents that a search cannot find, in the order of the judgements.
        documents: the number of judged documents.
    """

    queries: Mapping[str, str]
    judgements: Judgements
    unjudged: int
    barren: int
    absent: Sequence[str]
    documents: int


def ndcg(found: Sequence[str], scores: Mapping[str, float], cut: int = CUT) -> float:
    """Normalised discounted cumulative gain of one query, as trec_eval's ``ndcg_cut`` has it.

    DCG = sum over the ranks r = 1 ... cut of max(score, 0) / log2(r + 1), where one without a judgement scores 0.
    nDCG = DCG / DCG of the judged documents in the best order. K. Järvelin and J. Kekäläinen, TOIS 20(4), 2002.

    Args:
        found: the ids of documents, the best first.
        scores: the judgements of the query.
        cut: so many documents count.

    Returns:
        Between 0 and 1; 0 if no document is relevant.

    >>> round(ndcg(["a", "b"], {"b": 1}), 4)
    0.6309
    """
    best = _dcg(sorted(scores.values(), reverse=True)[:cut])
    return _dcg([scores.get(id, 0.0) for id in found[:cut]]) / best if best else 0.0


def _dcg(scores: Sequence[float]) -> float:
    return math.fsum(max(score, 0.0) / math.log2(rank + 1) for rank, score in enumerate(scores, 1))


def recall(found: Sequence[str], scores: Mapping[str, float], cut: int = CUT) -> float:
    """The share of the relevant documents, with a score above 0, that are among the first; arguments as for `ndcg`.

    >>> recall(["a", "b"], {"a": 2, "b": 0, "c": 1})
    0.5
    """
    good = {id for id, score in scores.items() if score > 0}
    return len(good & set(found[:cut])) / len(good) if good else 0.0


def reciprocal_rank(found: Sequence[str], scores: Mapping[str, float], cut: int = CUT) -> float:
    """1 / the rank of the first relevant document, 0 behind `cut` (E. M. Voorhees, TREC-8, 1999).

    Arguments as for `ndcg`.

    >>> reciprocal_rank(["a", "b"], {"b": 1})
    0.5
    """
    return next((1 / rank for rank, id in enumerate(found[:cut], 1) if scores.get(id, 0) > 0), 0.0)


def task_of(index: Index, queries: Mapping[str, str], judgements: Judgements) -> JudgedQueries:
    """Put queries and judgements together, and look for the judged documents in an index.

    Args:
        index: the index.
        queries: the texts, by the queries' ids.
        judgements: of these queries, or of some of them.

    Raises:
        DataError: a judgement is of another query, no query has a relevant document, or no judged document can be
            found.
    """
    strange = [id for id in judgements if id not in queries]
    if strange:
        raise DataError(
            f"{len(strange):,} of {len(judgements):,} judged queries are not among the queries, the first is "
            f"{strange[0]!r:.60}: give the queries that were judged"
        )
    kept = {id: text for id, text in queries.items() if any(score > 0 for score in judgements.get(id, {}).values())}
    if not kept:
        raise DataError("no query has a relevant document: a judgement must have a score above 0")
    judged = {id: judgements[id] for id in kept}
    documents = dict.fromkeys(document for scores in judged.values() for document in scores)
    absent = _absent(index, documents)
    if len(absent) == len(documents):
        raise DataError(
            f"none of {len(documents):,} judged documents is found in {index.folder}, the first is {absent[0]!r:.60}: "
            "`afterword index --id NAME` gives rows the ids that were judged"
        )
    barren = len(judgements) - len(kept)
    return JudgedQueries(kept, judged, len(queries) - len(judgements), barren, absent, len(documents))


def _absent(index: Index, documents: Mapping[str, None]) -> list[str]:
    """The documents that the index does not hold."""
    found = (doc for batch in batches(index, ["doc"]) for doc in batch["doc"].to_pylist())
    there = {doc for doc in found if doc in documents}
    return [document for document in documents if document not in there]


def judge(index: Index, task: JudgedQueries, vectors: NDArray[np.floating[Any]] | None, asked: Asked) -> list[Judged]:
    """Search for each query in each way, and compare what is found with the judgements, document by document.

    Args:
        index: the index.
        task: the q queries and their judgements.
        vectors: (q, D), by `Encoder.encode_query`; None goes with a search by text.
        asked: `by` chooses one way, None takes all that the index has; `where` and `exact` hold.

    Returns:
        The figures of each way.

    Raises:
        InputError: a query has no vector.
        DataError: `where` cannot be used, or there is no text index.
    """
    return [_judged(index, task, vectors, replace(asked, by=way)) for way in ways_of(index, asked)]


def ways_of(index: Index, asked: Asked) -> tuple[By, ...]:
    """The ways in which an index is judged: the one that is asked for, or all that it has."""
    if asked.by is not None:
        return (asked.by,)
    return WAYS if index.info.text_search else ("vector",)


def _judged(index: Index, task: JudgedQueries, vectors: NDArray[np.floating[Any]] | None, asked: Asked) -> Judged:
    found = find(index, list(task.queries.values()), vectors, replace(asked, top=CUT, each=True))
    lists = [[hit.doc for hit in one.hits] for one in found]

    def mean(metric: Metric) -> float:
        pairs = zip(lists, task.judgements.values(), strict=True)
        return math.fsum(metric(ids, scores) for ids, scores in pairs) / len(lists)

    assert asked.by is not None
    return Judged(asked.by, mean(ndcg), mean(recall), mean(reciprocal_rank))
