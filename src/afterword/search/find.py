"""Search an index by meaning, by words, or by both."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError, InputError
from .index import METRIC, OWN, VECTOR, Index, first_line
from .tune import has_index

By = Literal["hybrid", "vector", "text"]
NO_COLUMN = re.compile(r'No field named "?([^".]+)"?\.')
NPROBES = 20  # partitions of the vector index that are searched first; LanceDB goes on where too few rows are in them
REFINE = 10  # times more rows than are asked for are compared by their exact vectors
LEAST = 40  # rows that are read at least: hybrid ranks are fused of both sides' rows
SCORES: dict[By, str] = {"vector": "_distance", "text": "_score", "hybrid": "_relevance_score"}
"""LanceDB's column of scores."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Hit:
    """A row of an index that a search returns.

    Attributes:
        id, doc, chunk, start, end, text: the columns of the index.
        score: by vector, the cosine; by text, BM25; hybrid, the sum of 1 / (60 + rank) over both sides.
        kept: the columns that were kept of the input.
    """

    id: str
    doc: str
    chunk: int
    start: int
    end: int
    text: str
    score: float
    kept: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Search:
    """The settings of a search.

    Attributes:
        top: the number of hits.
        by: hybrid, vector or text; None = hybrid where the index has a text index, else vector.
        where: a condition on the columns, in SQL.
        exact: compare all vectors, and use no vector index.
        each: one hit a document: its best chunk.
    """

    top: int = 10
    by: By | None = None
    where: str | None = None
    exact: bool = False
    each: bool = False


@dataclass(frozen=True)
class Result:
    """The hits of a query, the best first.

    Attributes:
        query: its text.
        hits: at most `Search.top`.
        wordless: whether a hybrid search matched no row by words, so that its hits are those of the vectors alone.
    """

    query: str
    hits: list[Hit]
    wordless: bool = False


def resolve_by(index: Index, search: Search) -> By:
    """By what an index is searched; a search that LanceDB refuses is reported here, before a model is loaded.

    Raises:
        DataError: `where` cannot be used, or a search by words of an index without a text index.
    """
    if search.where is not None:
        try:
            index.table.search().where(f"({search.where})").select(["id"]).limit(1).to_arrow()
        except (ValueError, RuntimeError, OSError) as e:
            raise _unreadable(index, search.where, e) from None
    by = search.by or ("hybrid" if index.info.text_search else "vector")
    if by != "vector" and not has_index(index, "text"):
        raise DataError(
            f"{index.folder} has no text index yet: run the same `afterword index` again, or search --by vector"
            if index.info.text_search
            else f"{index.folder} was made with --no-text-search: search --by vector"
        )
    return by


def find(
    index: Index, texts: Sequence[str], vectors: NDArray[np.floating[Any]] | None, search: Search | None = None
) -> list[Result]:
    """Search an index for each of q queries.

    Args:
        index: the index.
        texts: the q queries.
        vectors: (q, D), by `Encoder.encode_query`; None goes with a search by text.
        search: the settings; None = ten hits.

    Returns:
        A result for each query; hits with equal scores are in the order of their ids.

    Raises:
        InputError: a query is blank, or has no vector.
        DataError: LanceDB refuses `where`, or there is no text index.
    """
    search = search or Search()
    by = resolve_by(index, search)
    for number, text in enumerate(texts, 1):
        if not text.strip():
            raise InputError(f"query {number} is blank: write what to search for")
        if by != "text" and (vectors is None or not np.isfinite(vectors[number - 1]).all()):
            raise InputError(f"query {number} has no vector: {text!r:.60}: search --by text, or use other words")
    return [
        _find(index, text, None if vectors is None else vectors[number], search, by)
        for number, text in enumerate(texts)
    ]


def _find(index: Index, text: str, vector: NDArray[np.floating[Any]] | None, search: Search, by: By) -> Result:
    """Read more and more rows, until they hold enough documents."""
    count = max(search.top, LEAST)
    while True:
        rows = _rows(index, text, vector, search, by, count)
        hits = [_hit(index, row, by) for row in rows]
        hits.sort(key=lambda hit: (-hit.score, hit.id))
        if search.each:
            best: dict[str, Hit] = {}
            for hit in hits:
                best.setdefault(hit.doc, hit)
            hits = list(best.values())
        if len(hits) >= search.top or len(rows) < count:
            wordless = by == "hybrid" and all(row.get("_score") is None for row in rows)
            return Result(text, hits[: search.top], bool(rows) and wordless)
        count *= 4


def _rows(
    index: Index, text: str, vector: NDArray[np.floating[Any]] | None, search: Search, by: By, count: int
) -> list[Row]:
    """The best rows, as LanceDB returns them."""
    from lancedb.query import MatchQuery
    from lancedb.rerankers import RRFReranker

    words = MatchQuery(text, "text")  # a plain text in quotes would be a phrase
    if by == "text":
        query: Any = index.table.search(words, query_type="fts")
    elif by == "vector":
        query = index.table.search(vector, vector_column_name=VECTOR)
    else:
        query = index.table.search(query_type="hybrid", vector_column_name=VECTOR, fts_columns="text")
        query = query.vector(vector).text(words).rerank(RRFReranker(return_score="all"))
    if by != "text":
        query = query.distance_type(METRIC).refine_factor(REFINE)
        query = query.minimum_nprobes(NPROBES).maximum_nprobes(0)
        query = query.bypass_vector_index() if search.exact else query
    if search.where is not None:
        query = query.where(f"({search.where})", prefilter=True)  # LanceDB ignores what follows a complete condition
    if by != "hybrid":
        query = query.select([*_columns(index), SCORES[by]])
    try:
        rows: list[Row] = query.limit(count).to_arrow().drop_columns([VECTOR] if by == "hybrid" else []).to_pylist()
    except (ValueError, RuntimeError, OSError) as e:
        raise _unreadable(index, search.where, e) from None
    return rows


def _columns(index: Index) -> list[str]:
    return [name for name in index.table.schema.names if name not in (VECTOR, "hash")]


def _unreadable(index: Index, where: str | None, error: Exception) -> DataError:
    """The error of a search that LanceDB refuses: of its condition, or of its files."""
    reason = first_line(error)
    if where is None:
        return DataError(f"{index.folder} cannot be read: {reason}")
    missing = NO_COLUMN.search(reason)
    fix = f"no column {missing[1]!r}; the columns are {', '.join(_columns(index))}" if missing else reason
    return DataError(f"--where {where!r:.200}: {fix}")


def _hit(index: Index, row: Row, by: By) -> Hit:
    own = {name: row[name] for name in OWN if name not in (VECTOR, "hash")}
    score = row[SCORES[by]]
    return Hit(**own, score=1 - score if by == "vector" else score, kept={name: row[name] for name in index.kept})
