"""Judge an index for ``afterword search --queries --qrels``: what is read, refused and printed."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ..errors import plural
from .console import say
from .page import Column, page_width, table

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ..index.find import Asked
    from ..index.index import Index
    from ..index.judge import Judged, JudgedQueries

    Vectors = Callable[[list[str]], NDArray[np.floating[Any]] | None]

HEADS = {"ndcg": "nDCG@10", "recall": "recall@10", "mrr": "MRR@10"}
"""The heading of each figure."""


def check_judging(queries: Path | None, qrels: Path | None, **others: object) -> tuple[Path, Path]:
    """Refuse one file without the other, and options that have no effect beside them.

    Args:
        queries: the file of --queries.
        qrels: the file of --qrels.
        others: the values of other options, by their names; ``texts`` are the queries of the command line.

    Raises:
        typer.BadParameter: what is given does not go together.
    """
    if queries is None or qrels is None:
        missing = "--queries" if queries is None else "--qrels"
        raise typer.BadParameter("is needed: an index is judged by --queries and --qrels", param_hint=missing)
    for name in (name for name, value in others.items() if value):
        where = "QUERY" if name == "texts" else f"--{name.replace('_', '-')}"
        raise typer.BadParameter("has no effect where an index is judged by --queries", param_hint=where)
    return queries, qrels


def judge_index(
    index: Index, files: tuple[Path, Path], asked: Asked, vectors_of: Vectors, as_json: bool
) -> Sequence[str]:
    """Judge an index by two files; judged documents that cannot be found are told on stderr.

    Args:
        index: the index.
        files: of the queries, and of the judgements.
        asked: `by`, `where` and `exact` hold.
        vectors_of: from queries to their vectors.
        as_json: whether lines are of JSON.

    Returns:
        The lines to print.

    Raises:
        DataError: a file cannot be read, or the two do not go together.
    """
    from ..index.judge import judge, task_of
    from ..index.judgements import read_judgements, read_query_file

    queries, qrels = files
    task = task_of(index, read_query_file(queries), read_judgements(qrels))
    if task.absent:
        say(
            f"warning: {len(task.absent):,} of {plural(task.documents, 'judged document')} not in the index, "
            f"the first is {task.absent[0]!r:.60}: judged as not found"
        )
    return judged_lines(task, judge(index, task, vectors_of(list(task.queries.values())), asked), as_json)


def judged_lines(task: JudgedQueries, judged: Sequence[Judged], as_json: bool) -> list[str]:
    """A line of JSON, or a table with a row for each way of searching and the number of queries below."""
    if as_json:
        counts = {
            "queries": len(task.queries), "without_judgement": task.unjudged, "without_relevant": task.barren,
            "not_in_index": len(task.absent),
        }  # fmt: skip
        figures = {one.by: {head: getattr(one, name) for name, head in HEADS.items()} for one in judged}
        return [json.dumps({**counts, "by": figures})]
    columns = [Column([one.by for one in judged], "text", "by")]
    columns += [Column([f"{getattr(one, name):.4f}" for one in judged], "score", HEADS[name]) for name in HEADS]
    left = [f"{task.unjudged:,} without a judgement"] * bool(task.unjudged)
    left += [f"{task.barren:,} without a relevant document"] * bool(task.barren)
    told = f"{len(task.queries):,} {'query' if len(task.queries) == 1 else 'queries'}"
    return [*table(columns, page_width()), told + (f"; left out: {', '.join(left)}" if left else "")]
