"""Search an index by meaning, by words or by both, and measure it by queries with relevance judgements (qrels)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..errors import BadRow, DataError, InputError
from ..files.read import open_rows
from .index import COLUMNS, METRIC, VECTOR, Index, first_line, reported

By = Literal["hybrid", "vector", "text"]
Vectors = NDArray[np.floating[Any]]

NO_COLUMN = re.compile(r'No field named "?([^".]+)"?\.')
NPROBES = 20  # partitions of the vector index that are searched first; LanceDB goes on where they hold too few rows
REFINE = 10  # times the requested rows are compared by their exact vectors
LEAST = 40  # rows that are read at least: hybrid fuses the ranks of this many rows of each list
SCORES: dict[By, str] = {"vector": "_distance", "text": "_score", "hybrid": "_relevance_score"}
"""LanceDB's column of scores."""

STOP_WORDS = frozenset(
    "i me my myself we our ours ourselves you your yours yourself yourselves he him his himself she her hers herself "
    "it its itself they them their theirs themselves what which who whom this that these those am is are was were be "
    "been being have has had having do does did doing can could may might must shall should will would ought a an the "
    "and but if or because as until while of at by for with about against between into through during before after "
    "above below to from up down in out on off over under again further then once here there when where why how all "
    "any both each few more most much many other some such no nor not only own same so than too very just".split()
)
"""English words that say nothing of a text's subject. A text index keeps them: see `Index.create`."""

METRICS = ("nDCG@10", "recall@10", "MRR@10")
CUT = 10
QUERY_COLUMNS = (("_id", "id", "query-id"), ("text", "query"))
QRELS_COLUMNS = (("query-id", "query_id", "qid"), ("corpus-id", "corpus_id", "docid"), ("score", "relevance", "rel"))
"""The columns of a file, each by the names that it may have."""

Qrels = dict[str, dict[str, float]]
"""For each query's id, the relevance of documents: above 0, a document is relevant."""


@dataclass(frozen=True)
class Hit:
    """A row of an index that a search returns.

    Attributes:
        id, doc, chunk, start, end, text: the columns of the index.
        score: by vector, the cosine; by text, BM25; hybrid, the sum of 1 / (60 + rank) over both lists.
        kept: the columns kept from the input.
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
        by: hybrid, vector or text.
        where: a condition on the columns, in SQL.
        exact: compare all vectors instead of using the vector index.
        each: one hit per document: its best chunk.
    """

    top: int = 10
    by: By = "hybrid"
    where: str | None = None
    exact: bool = False
    each: bool = False


@dataclass(frozen=True)
class Result:
    """The hits of a query, the best first; and whether any row has one of its words (always, by vector)."""

    query: str
    hits: list[Hit]
    matched: bool = True


def check_where(index: Index, where: str) -> None:
    """Check a condition before a model is loaded; raises DataError if LanceDB refuses it."""
    try:
        index.table.search().where(f"({where})").select(["id"]).limit(1).to_arrow()
    except (ValueError, RuntimeError, OSError) as e:
        reason = first_line(e)
        missing = NO_COLUMN.search(reason)
        if missing:
            reason = f"there is no column {missing[1]!r}: the columns are {', '.join(_columns(index))}"
        raise DataError(f"where={where!r:.200}: {reason}") from None


def find(index: Index, texts: Sequence[str], vectors: Vectors | None, search: Search | None = None) -> list[Result]:
    """Search an index for each of q queries.

    Args:
        index: the index.
        texts: the q queries.
        vectors: (q, D), from `Encoder.encode_query`; None for a search by text.
        search: the settings; None = ten hits.

    Returns:
        A result for each query; hits with equal scores are in the order of their ids.

    Raises:
        InputError: a query is blank, or has no vector.
    """
    search, results = search or Search(), []
    for i, text in enumerate(texts):
        if not text.strip():
            raise InputError(f"query {i + 1} is blank: write what to search for")
        vector = None if vectors is None else vectors[i]
        if search.by != "text" and (vector is None or not np.isfinite(vector).all()):
            raise InputError(f"query {i + 1} has no vector: {text!r:.60}: pass by='text', or change its words")
        results.append(_find(index, text, vector, search))
    return results


def _find(index: Index, text: str, vector: Vectors | None, search: Search) -> Result:
    """Read more rows until they hold enough documents."""
    count = max(search.top, LEAST)
    while True:
        rows = _rows(index, text, vector, search, count)
        hits = sorted((_hit(index, row, search.by) for row in rows), key=lambda hit: (-hit.score, hit.id))
        if search.each:
            best: dict[str, Hit] = {}
            for hit in hits:
                best.setdefault(hit.doc, hit)
            hits = list(best.values())
        if len(hits) >= search.top or len(rows) < count:
            return Result(text, hits[: search.top], any(row.get("_score") is not None for row in rows))
        count *= 4


def _rows(index: Index, text: str, vector: Vectors | None, search: Search, count: int) -> list[dict[str, Any]]:
    """The best rows, as LanceDB returns them."""
    from lancedb.query import MatchQuery
    from lancedb.rerankers import RRFReranker

    words = MatchQuery(_without_stop_words(index, text), "text")  # a string in quotes would be a phrase
    by = search.by
    if by == "text":
        query: Any = index.table.search(words, query_type="fts")
    elif by == "vector":
        query = index.table.search(vector, vector_column_name=VECTOR)
    else:
        query = index.table.search(query_type="hybrid", vector_column_name=VECTOR, fts_columns="text")
        query = query.vector(vector).text(words).rerank(RRFReranker(return_score="all"))
    if by != "text":
        query = query.distance_type(METRIC).refine_factor(REFINE).minimum_nprobes(NPROBES).maximum_nprobes(0)
        query = query.bypass_vector_index() if search.exact else query
    if search.where is not None:
        query = query.where(f"({search.where})", prefilter=True)  # LanceDB ignores what follows a complete condition
    if by != "hybrid":
        query = query.select([*_columns(index), SCORES[by]])
    with reported(index.folder, "read"):
        table = query.limit(count).to_arrow()
    rows: list[dict[str, Any]] = table.select([name for name in table.schema.names if name != VECTOR]).to_pylist()
    return rows


def _without_stop_words(index: Index, text: str) -> str:
    """A query to an English index without its stop words, which match rows on any subject."""
    if index.info.language != "English":
        return text
    words = [word for word in text.split() if word.casefold().strip(".,;:!?'\"()") not in STOP_WORDS]
    return " ".join(words) or text


def _columns(index: Index) -> list[str]:
    return [name for name in index.table.schema.names if name not in (VECTOR, "hash")]


def _hit(index: Index, row: Mapping[str, Any], by: By) -> Hit:
    columns = {name: row[name] for name in COLUMNS if name not in (VECTOR, "hash")}
    score = row[SCORES[by]]
    return Hit(**columns, score=1 - score if by == "vector" else score, kept={name: row[name] for name in index.kept})


@dataclass(frozen=True)
class JudgedQueries:
    """Queries by which an index is measured: those with a relevant document.

    Attributes:
        queries, qrels: their texts and judgements, by their ids.
        skipped: the number of queries without a relevant document.
        missing: the judged documents that the index does not hold.
    """

    queries: Mapping[str, str]
    qrels: Qrels
    skipped: int
    missing: Sequence[str]

    @classmethod
    def read(cls, index: Index, queries: Path, qrels: Path) -> JudgedQueries:
        """Read a table of queries with id and text, and one of judgements with query-id, corpus-id and score.

        Raises:
            DataError: a row cannot be read, there are no rows, or the files and the index do not fit together.
        """
        texts, judged = read_queries(queries), read_qrels(qrels)
        relevant = {id: judged[id] for id in texts if max(judged.get(id, {}).values(), default=0) > 0}
        if not relevant:
            raise DataError(
                f"no query of {queries} has a relevant document in {qrels}: its ids are like "
                f"{next(iter(texts), '')!r:.60}, those of the judgements like {next(iter(judged), '')!r:.60}"
            )
        documents = dict.fromkeys(document for scores in relevant.values() for document in scores)
        held = set(index.read(["doc"])["doc"].to_pylist())
        missing = [document for document in documents if document not in held]
        if len(missing) == len(documents):
            raise DataError(
                f"{index.folder} holds none of {len(documents):,} judged documents, such as {missing[0]!r:.60}: make "
                "the index with id=, the column of these ids"
            )
        used = {id: texts[id] for id in relevant}
        return cls(used, relevant, len(texts) - len(relevant), missing)


def read_queries(path: Path) -> dict[str, str]:
    """Read the texts of queries by their ids; file and errors are those of `JudgedQueries.read`."""
    return {id: text for _, (id, text) in _read_rows(path, QUERY_COLUMNS)}


def read_qrels(path: Path) -> Qrels:
    """Read relevance judgements; file and errors are those of `JudgedQueries.read`."""
    qrels: Qrels = {}
    for line, (query, document, score) in _read_rows(path, QRELS_COLUMNS):
        try:
            qrels.setdefault(query, {})[document] = float(score)
        except ValueError:
            raise BadRow(path, line, f"the score is not a number: {score!r:.40}") from None
    return qrels


def _read_rows(path: Path, columns: Sequence[Sequence[str]]) -> Iterator[tuple[int, list[str]]]:
    """The values of some columns of each row, with its line."""
    line = 0
    with closing(open_rows(path)) as reader:
        for record in reader:
            fields, line = record.fields, record.line
            if fields is None:
                raise BadRow(path, line, record.problem or "cannot be read")
            values = [next((str(fields[name]).strip() for name in names if fields.get(name) is not None), "")
                      for names in columns]  # fmt: skip
            for value, names in zip(values, columns, strict=True):
                if not value:
                    raise BadRow(path, line, f"has no {' or '.join(names)}, only {', '.join(fields):.160}")
            yield line, values
    if not line:
        raise DataError(f"{path} has no rows")


def measure(index: Index, judged: JudgedQueries, vectors: Vectors | None, search: Search) -> dict[str, float]:
    """Search for each query, and compare the documents of the first ten hits with the judgements.

    The metrics are trec_eval's: nDCG with the relevance as the gain (K. Järvelin and J. Kekäläinen, TOIS 20(4), 2002),
    recall, and the reciprocal rank. Of a chunked document, the best chunk counts. Arguments and errors are those of
    `find`; `Search.top` and `Search.each` have no effect.

    Returns:
        The mean of each of `METRICS` over the queries, between 0 and 1.
    """
    discounts = 1 / np.log2(np.arange(2, CUT + 2))
    results = find(index, list(judged.queries.values()), vectors, replace(search, top=CUT, each=True))
    scores: list[Any] = []
    for result, qrels in zip(results, judged.qrels.values(), strict=True):
        gains = np.array([max(qrels.get(hit.doc, 0), 0) for hit in result.hits])
        relevant = np.array(sorted((score for score in qrels.values() if score > 0), reverse=True))
        best = relevant[:CUT] @ discounts[: len(relevant)]
        ranks = np.flatnonzero(gains) + 1
        reciprocal = 1 / ranks[0] if len(ranks) else 0.0
        scores.append([gains @ discounts[: len(gains)] / best, len(ranks) / len(relevant), reciprocal])
    return dict(zip(METRICS, np.mean(scores, axis=0).tolist(), strict=True))
