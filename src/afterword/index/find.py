"""Find the rows of an index that fit a query: by meaning, by words, or by both."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError, InputError
from .index import OWN, VECTOR, Index, first_line
from .tune import has_index

By = Literal["hybrid", "vector", "text"]
K = 60  # of reciprocal rank fusion: G. V. Cormack et al., SIGIR 2009
GONE = "Not found: "  # LanceDB's message for a version whose files were removed
NO_COLUMN = re.compile(r'No field named "?([^".]+)"?\.')
SCORE = "_score"  # a name that no kept column has
NPROBES = 20  # partitions of the vector index that are searched
REFINE = 10  # as many times the rows are compared by their exact vectors
DEEPER = 4  # hybrid: so many times as many rows of each side are fused
LEAST = 10  # rows are looked for at least, so that fewer are the first of these
TIED = 10_000  # rows more are read to find the first ids among rows that score as the last one does

Row = dict[str, Any]


class GoneError(DataError):
    """Files of the version that is searched are gone: others have changed the index since it was opened."""


@dataclass(frozen=True)
class Hit:
    """A row that was found.

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
class Asked:
    """What a search asks for.

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
class Found:
    """The hits of a query, the best first.

    Attributes:
        query: its text.
        hits: at most `Asked.top`.
        wordless: whether a hybrid search found no row by words, so that its hits are those of the vectors alone.
    """

    query: str
    hits: list[Hit]
    wordless: bool = False


def way_of(index: Index, asked: Asked) -> By:
    """How an index is searched.

    Raises:
        DataError: words are to be searched for, and the index has no text index, or not yet.
    """
    if asked.by in ("hybrid", "text") and not index.info.text_search:
        raise DataError(f"{index.folder} was made with --no-text-search: search it by vector")
    by = asked.by or ("hybrid" if index.info.text_search else "vector")
    if by != "vector" and not has_index(index, "text"):
        raise DataError(
            f"{index.folder} has no text index yet: the same `afterword index` makes it, or search by vector"
        )
    return by


def find(
    index: Index, texts: Sequence[str], vectors: NDArray[np.floating[Any]] | None, asked: Asked | None = None
) -> list[Found]:
    """Search an index for each of q queries by itself.

    Args:
        index: the index.
        texts: the q queries.
        vectors: (q, D), by `Encoder.encode_query`; None goes with a search by text.
        asked: what is wanted; None = ten rows.

    Returns:
        What was found, by query. Rows with equal scores are in the order of their ids; where more than `TIED` rows
        score as the last one does, these are the first by id of so many. Fewer hits are the first of more; a hybrid
        search of more than `LEAST` hits, or of documents, looks deeper on both sides, which can change their order.

    Raises:
        InputError: a query is blank, or has no vector.
        DataError: `where` cannot be used, or there is no text index.
    """
    asked = asked or Asked()
    by = way_of(index, asked)
    for number, text in enumerate(texts, 1):
        if not text.strip():
            raise InputError(f"query {number} is blank: there is nothing to search for")
        if by != "text" and (vectors is None or not np.isfinite(vectors[number - 1]).all()):
            raise InputError(f"query {number}, {text!r:.60}, has no vector: search by text, or write other words")
    queries: Sequence[NDArray[np.floating[Any]] | None] = [None] * len(texts) if vectors is None else list(vectors)
    found = []
    for text, vector in zip(texts, queries, strict=True):
        try:
            found.append(_find(index, text, vector, asked, by))
        except GoneError:
            index.table.checkout_latest()
            found.append(_find(index, text, vector, asked, by))
    return found


def _find(index: Index, text: str, vector: NDArray[np.floating[Any]] | None, asked: Asked, by: By) -> Found:
    """Search deeper and deeper, until there are enough documents or all rows were seen."""
    depth = max(asked.top, LEAST)
    while True:
        deep = DEEPER * depth if by == "hybrid" else depth
        near = [] if by == "text" else _by_vector(index, vector, asked, deep)
        worded = [] if by == "vector" else _by_text(index, text, asked, deep)
        rows = fused([near, worded]) if near and worded else near or worded
        hits = [_hit(index, row) for row in (_best(rows) if asked.each else rows)]
        if len(hits) >= asked.top or max(len(near), len(worded)) < deep:
            return Found(text, hits[: asked.top], by == "hybrid" and bool(near) and not worded)
        depth *= 2


def _by_vector(index: Index, vector: Any, asked: Asked, count: int) -> list[Row]:
    info = index.info
    search = index.table.search(vector, vector_column_name=VECTOR).distance_type(info.metric)
    search = search.bypass_vector_index() if asked.exact else search.nprobes(NPROBES).refine_factor(REFINE)
    rows = _rows(index, search, asked, count, "_distance")
    if len(rows) < count and has_index(index, VECTOR):  # the partitions that are searched may hold fewer rows that fit
        search = index.table.search(vector, vector_column_name=VECTOR).distance_type(info.metric).bypass_vector_index()
        rows = _rows(index, search, asked, count, "_distance")
    return _sorted({**row, SCORE: 1 - row.pop("_distance")} for row in rows)[:count]


def _by_text(index: Index, text: str, asked: Asked, count: int) -> list[Row]:
    from lancedb.query import MatchQuery

    search = index.table.search(MatchQuery(text, "text"), query_type="fts")  # a plain text in quotes would be a phrase
    return _sorted(_rows(index, search, asked, count, SCORE))[:count]


def _rows(index: Index, search: Any, asked: Asked, count: int, score: str) -> list[Row]:
    """The best rows, and all that score as the last of them: LanceDB cuts these anywhere."""
    names = [name for name in index.table.schema.names if name not in (VECTOR, "hash")]
    if asked.where is not None:
        search = search.where(f"({asked.where})", prefilter=True)  # LanceDB ignores what follows a complete condition
    wanted, most = count + 1, count + TIED
    try:
        while True:
            rows: list[Row] = search.limit(wanted).select([*names, score]).to_list()
            if len(rows) < wanted or rows[count - 1][score] != rows[-1][score] or wanted == most:
                return rows
            wanted = min(4 * wanted, most)
    except (ValueError, RuntimeError, OSError) as e:
        raise _unreadable(index, asked.where, e) from None


def _unreadable(index: Index, where: str | None, error: Exception) -> DataError:
    """The error of a search that LanceDB refuses: of its condition, or of its files."""
    reason = first_line(error)
    if where is None or GONE in reason:
        kind = GoneError if GONE in reason else DataError
        return kind(f"{index.folder} cannot be read: {reason}")
    missing = NO_COLUMN.search(reason)
    columns = ", ".join(name for name in index.table.schema.names if name not in (VECTOR, "hash"))
    return DataError(
        f"--where {where!r:.200}: " + (f"no column {missing[1]!r}; the columns are {columns}" if missing else reason)
    )


def _sorted(rows: Any) -> list[Row]:
    return sorted(rows, key=lambda row: (-row[SCORE], row["id"]))


def fused(sides: Sequence[Sequence[Row]]) -> list[Row]:
    """Reciprocal rank fusion: a row scores the sum of 1 / (60 + its rank) over the sides that found it.

    >>> a, b, c = ({"id": name} for name in "abc")
    >>> [(row["id"], round(row[SCORE], 4)) for row in fused([[a, b], [b, c]])]
    [('b', 0.0325), ('a', 0.0164), ('c', 0.0161)]
    """
    scores: dict[str, float] = {}
    for side in sides:
        for rank, row in enumerate(side, 1):
            scores[row["id"]] = scores.get(row["id"], 0.0) + 1 / (K + rank)
    rows = {row["id"]: row for side in sides for row in side}
    return _sorted({**row, SCORE: scores[name]} for name, row in rows.items())


def _best(rows: Sequence[Row]) -> list[Row]:
    """The first row of each document."""
    best: dict[str, Row] = {}
    for row in rows:
        best.setdefault(row["doc"], row)
    return list(best.values())


def _hit(index: Index, row: Row) -> Hit:
    own = {name: row[name] for name in OWN if name not in (VECTOR, "hash")}
    return Hit(**own, score=float(row[SCORE]), kept={name: row[name] for name in index.kept})
