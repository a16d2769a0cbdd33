"""Queries, and judgements of which documents answer them, from files as BEIR, TREC and JSON lines have them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from ..errors import BadRow, DataError
from ..files.lines import LinesReader
from ..files.read import TABLES, format_of, open_rows
from ..files.sources import opened
from ..jobs.items import fault

QUERY = ("_id", "id", "query-id", "query_id", "qid")
WORDS = ("text", "query")
JUDGED_QUERY = ("query-id", "query_id", "qid", "query")
JUDGED_DOCUMENT = ("corpus-id", "corpus_id", "docid", "doc_id", "doc", "corpus")
SCORE = ("score", "rel", "relevance")
"""The names that a field may have; the first that a row has is read."""
TREC = ("query-id", "", "corpus-id", "score")
"""The four columns of TREC; the second one is not used."""

BELOW = " below its first line, which names the columns"

Judgements = dict[str, dict[str, float]]
"""For each query's id, the score of each judged document: above 0, it is relevant."""


def read_query_file(path: Path) -> dict[str, str]:
    """The queries of a file by their ids.

    Args:
        path: a .jsonl, .csv, .tsv or .parquet file with an id (`QUERY`) and a text (`WORDS`) in each row.

    Raises:
        MissingDataset: there is no such file.
        BadRow: a row cannot be read, has no id or text, or an id is there twice.
        DataError: the file has another format, or no rows.
    """
    found: dict[str, str] = {}
    for line, fields in _rows(path):
        id = _id(path, line, fields, QUERY)
        text = _value(path, line, fields, WORDS)
        wrong = fault(text)
        if wrong is not None:
            raise BadRow(path, line, f"the text of query {id!r:.60} {wrong}")
        if id in found:
            raise BadRow(path, line, f"has the id {id!r:.60} of another query")
        found[id] = text
    if not found:
        raise DataError(f"{path} has no rows{BELOW if format_of(path) in ('csv', 'tsv') else ''}")
    return found


def read_judgements(path: Path) -> Judgements:
    """The judgements of a file.

    Args:
        path: a .jsonl, .csv, .tsv or .parquet file with the ids of a query (`JUDGED_QUERY`) and of a document
            (`JUDGED_DOCUMENT`) and a score in each row, such as BEIR's qrels/test.tsv; or a file of any other name with
            TREC's four columns: query, anything, document, score. Blanks around ids are dropped in .csv and .tsv.

    Raises:
        MissingDataset: there is no such file.
        BadRow: a row cannot be read, has no id or no number as score, or judges a document again.
        DataError: the file has no rows.
    """
    found: Judgements = {}
    for line, fields in _trec(path) if _is_trec(path) else _rows(path):
        query, document = _id(path, line, fields, JUDGED_QUERY), _id(path, line, fields, JUDGED_DOCUMENT)
        score = _number(_value(path, line, fields, SCORE))
        if score is None:
            raise BadRow(path, line, f"the score {_value(path, line, fields, SCORE)!r:.40} is not a number")
        if document in found.setdefault(query, {}):
            raise BadRow(path, line, f"judges document {document!r:.60} for query {query!r:.60} again")
        found[query][document] = score
    if not found:
        raise DataError(f"{path} has no rows{BELOW if format_of(path) in ('csv', 'tsv') else ''}")
    return found


def _rows(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    with closing(open_rows(path)) as reader:
        for record in reader:
            if record.fields is None:
                raise BadRow(path, record.line, record.problem or "cannot be read")
            yield record.line, record.fields


def _is_trec(path: Path) -> bool:
    """Whether a file has TREC's columns: a .tsv file, if its first line ends in a number behind three more columns."""
    kind = format_of(path)
    if kind != "tsv":
        return kind not in TABLES
    with opened(path) as stream, closing(LinesReader(stream, name=str(path))) as reader:
        first = next((text.split() for _, text, _ in reader.lines()), [])
    return len(first) == len(TREC) and _number(first[-1]) is not None


def _trec(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    with opened(path) as stream, closing(LinesReader(stream, name=str(path))) as reader:
        for line, text, problem in reader.lines():
            cells = text.split()
            if not cells and problem is None:
                continue
            if problem is not None or len(cells) != len(TREC):
                many = f"has {len(cells)} column{'s' * (len(cells) != 1)}, not TREC's four: query 0 document score"
                raise BadRow(path, line, problem or many)
            yield line, dict(zip(TREC, cells, strict=True))


def _value(path: Path, line: int, fields: Mapping[str, Any], names: Sequence[str]) -> Any:
    name = next((name for name in names if name in fields), None)
    if name is None:
        there = ", ".join(map(repr, fields)) or "none"
        names_first = "; the first line names the columns" if format_of(path) in ("csv", "tsv") else ""
        raise BadRow(path, line, f"has no field {' or '.join(names)}, only {there:.160}{names_first}")
    return fields[name]


def _id(path: Path, line: int, fields: Mapping[str, Any], names: Sequence[str]) -> str:
    value = _value(path, line, fields, names)
    if isinstance(value, str) and format_of(path) in ("csv", "tsv"):
        value = value.strip()  # blanks beside a comma or a tab
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise BadRow(path, line, f"{value!r:.40} is no id: give a string or a whole number as {names[0]}")
    return str(value)


def _number(value: Any) -> float | None:
    """A finite number, or one that a string spells.

    >>> _number("2"), _number("nan"), _number(True)
    (2.0, None, None)
    """
    try:
        number = math.nan if isinstance(value, bool | None) else float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
