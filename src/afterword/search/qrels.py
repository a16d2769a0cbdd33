"""Measure an index by queries with relevance judgements (qrels): nDCG@10, recall@10 and MRR@10 of trec_eval."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import BadRow, DataError, MissingExtra
from ..files.lines import TEXT
from ..files.read import TABLES, format_of, open_rows, open_texts
from .find import Search, find
from .index import Index
from .rows import batches

CUT = 10
METRICS = {"nDCG@10": "ndcg_cut_10", "recall@10": "recall_10", "MRR@10": "recip_rank"}
"""trec_eval's name of each metric."""

QUERY_FILE = (("_id", "id", "query-id"), ("text", "query"))
QRELS = (("query-id", "query_id", "qid"), ("corpus-id", "corpus_id", "docid"), ("score", "relevance", "rel"))
"""The columns of a file, each by the names that it may have."""

Qrels = dict[str, dict[str, int]]
"""For each query's id, the relevance of documents: above 0, a document is relevant."""


@dataclass(frozen=True)
class JudgedQueries:
    """Queries that an index is measured by.

    Attributes:
        queries: the texts of the queries with a relevant document, by their ids.
        qrels: their judgements.
        skipped: the number of queries without a relevant document.
        documents: the number of judged documents.
        missing: those that the index does not hold.
    """

    queries: Mapping[str, str]
    qrels: Qrels
    skipped: int
    documents: int
    missing: Sequence[str]


def read_query_file(path: Path) -> dict[str, str]:
    """Read queries by their ids.

    Args:
        path: a .jsonl, .csv, .tsv or .parquet file with an id and a text in each row.

    Raises:
        MissingDataset: there is no such file.
        DataError: a row cannot be read or repeats an id, or there are no rows.
    """
    queries: dict[str, str] = {}
    for line, (id, text) in _rows(path, QUERY_FILE):
        if id in queries:
            raise BadRow(path, line, f"repeats the id {id!r:.60}")
        queries[id] = text
    return queries


def read_qrels(path: Path) -> Qrels:
    """Read relevance judgements.

    Args:
        path: a .jsonl, .csv, .tsv or .parquet file with BEIR's columns query-id, corpus-id and score; or a file with
            any other ending and TREC's four columns, query, 0, document and score.

    Raises:
        MissingDataset: there is no such file.
        DataError: a row cannot be read or judges a document again, or there are no rows.
    """
    qrels: Qrels = {}
    for line, (query, document, score) in _rows(path, QRELS) if format_of(path) in TABLES else _trec(path):
        if not re.fullmatch(r"[+-]?\d+(\.0*)?", score):
            raise BadRow(path, line, f"the score is not a whole number: {score!r:.40}")
        if document in qrels.setdefault(query, {}):
            raise BadRow(path, line, f"judges document {document!r:.60} for query {query!r:.60} again")
        qrels[query][document] = int(float(score))
    return qrels


def _rows(path: Path, columns: Sequence[Sequence[str]]) -> Iterator[tuple[int, list[str]]]:
    """The values of some columns of each row, with its line."""
    line = 0
    with closing(open_rows(path)) as reader:
        for record in reader:
            fields, line = record.fields, record.line
            if fields is None:
                raise BadRow(path, line, record.problem or "cannot be read")
            names = [next((name for name in column if name in fields), None) for column in columns]
            values = [None if name is None else fields[name] for name in names]
            for value, column in zip(values, columns, strict=True):
                if value is None or not str(value).strip():
                    raise BadRow(path, line, f"has no {' or '.join(column)}, only {', '.join(fields):.160}")
            yield line, [str(value).strip() for value in values]
    if not line:
        raise DataError(f"{path} has no rows")


def _trec(path: Path) -> Iterator[tuple[int, list[str]]]:
    with closing(open_texts(path, io.BytesIO(), kind="txt")) as reader:
        for record in reader:
            cells = str((record.fields or {}).get(TEXT, "")).split()
            if cells and len(cells) != 4:
                raise BadRow(path, record.line, f"has {len(cells)} columns, not TREC's four: query 0 document score")
            if cells:
                yield record.line, [cells[0], *cells[2:]]


def select(index: Index, queries: Mapping[str, str], qrels: Qrels) -> JudgedQueries:
    """Select the queries that have a relevant document, and look for the judged documents in an index.

    Raises:
        DataError: no query has a relevant document, or the index holds none of the judged documents.
    """
    judged = {id: qrels[id] for id in queries if max(qrels.get(id, {}).values(), default=0) > 0}
    if not judged:
        raise DataError(
            f"no query has a relevant document: the queries have ids like {next(iter(queries), '')!r:.60}, the "
            f"judgements ids like {next(iter(qrels), '')!r:.60}"
        )
    documents = {document: None for scores in judged.values() for document in scores}
    held = {doc for batch in batches(index, ["doc"]) for doc in batch["doc"].to_pylist()}
    missing = [document for document in documents if document not in held]
    if len(missing) == len(documents):
        raise DataError(
            f"{index.folder} holds none of {len(documents):,} judged documents, such as {missing[0]!r:.60}: build it "
            "with `afterword index --id NAME`, where NAME is the column of these ids"
        )
    texts = {id: queries[id] for id in judged}
    return JudgedQueries(texts, judged, len(queries) - len(judged), len(documents), missing)


def measure(
    index: Index, judged: JudgedQueries, vectors: NDArray[np.floating[Any]] | None, search: Search
) -> dict[str, float]:
    """Search for each query, and compare the documents of the first ten hits with the judgements.

    nDCG as K. Järvelin and J. Kekäläinen, TOIS 20(4), 2002, computed by trec_eval (pytrec_eval). Where documents are
    chunked, the best chunk of each counts.

    Args:
        index: the index.
        judged: the q queries.
        vectors: (q, D), by `Encoder.encode_query`; None goes with a search by text.
        search: the settings; `top` and `each` have no effect.

    Returns:
        The mean over the queries of each of `METRICS`, between 0 and 1.

    Raises:
        InputError, DataError: as `find` does.
        MissingExtra: pytrec_eval is not installed.
    """
    try:
        from pytrec_eval import RelevanceEvaluator
    except ImportError:
        raise MissingExtra("pytrec_eval", "search") from None
    results = find(index, list(judged.queries.values()), vectors, replace(search, top=CUT, each=True))
    run = {
        id: {hit.doc: float(-rank) for rank, hit in enumerate(result.hits)}
        for id, result in zip(judged.queries, results, strict=True)
    }
    scores = RelevanceEvaluator(judged.qrels, {"ndcg_cut.10", "recall.10", "recip_rank"}).evaluate(run)
    return {name: float(np.mean([one[key] for one in scores.values()])) for name, key in METRICS.items()}
