"""``afterword search``: the rows of an index that fit a query."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..errors import DataError, plural
from . import options as o
from .console import say
from .inputs import open_reader, read_form
from .model import ModelChoice
from .searching import encoder_of
from .tables import Column, page_width, table

if TYPE_CHECKING:
    from ..files.lines import Reader
    from ..search.find import Result, Search
    from ..search.index import Index

By = Literal["hybrid", "vector", "text"]


def search(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder of the index.")],
    query: Annotated[
        list[str] | None, typer.Argument(metavar="QUERY", help="The query. Default: those of --input or stdin.")
    ] = None,
    input: o.Input = None,
    format: o.Format = None,
    field: o.Field = None,
    delimiter: o.Delimiter = None,
    encoding: o.Encoding = None,
    no_header: o.NoHeader = False,
    model: Annotated[
        str | None,
        typer.Option("-m", "--model", metavar="MODEL", help="The model. Default: the one that the index names."),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option("--method", metavar="METHOD", help="The method. Default: the one that the index names."),
    ] = None,
    judged_queries: Annotated[
        Path | None,
        typer.Option(
            "--queries",
            metavar="FILE",
            help="Measure the index by this .jsonl, .csv, .tsv or .parquet file of queries, with an id (_id or id) and "
            "a text in each row: print nDCG@10, recall@10 and MRR@10 by the judgements of --qrels.",
        ),
    ] = None,
    qrels: Annotated[
        Path | None,
        typer.Option(
            "--qrels",
            metavar="FILE",
            help="Relevance judgements: BEIR's columns query-id, corpus-id and score, or TREC's four columns. A "
            "document with a score above 0 is relevant.",
        ),
    ] = None,
    top: Annotated[
        int, typer.Option("--top", min=1, max=1_000_000, metavar="N", help="Number of rows of a query.")
    ] = 10,
    by: Annotated[
        By | None,
        typer.Option(
            "--by",
            metavar="BY",
            help="vector finds by meaning and scores by the cosine; text finds by words and scores by BM25; hybrid "
            "joins both by their ranks. Default: hybrid where the index has a text index, else vector.",
        ),
    ] = None,
    where: Annotated[
        str | None,
        typer.Option("--where", metavar="SQL", help="Only rows that fit this condition, as in \"channel = 'email'\"."),
    ] = None,
    exact: Annotated[bool, typer.Option("--exact", help="Compare all vectors, and use no vector index.")] = False,
    each: Annotated[bool, typer.Option("--each", help="One row a document: its best chunk.")] = False,
    on_long: o.OnLong = "warn",
    device: o.Device = None,
    dtype: o.Dtype = None,
    revision: o.Revision = None,
    max_length: o.MaxLength = None,
    trust_remote_code: o.Trust = False,
    as_json: o.AsJson = False,
) -> int:
    """Search an index that `afterword index` made, by meaning and by words.

    The words after FOLDER are one query; --input takes a file with a query in each row. The model is the one that made
    the index; another one is refused. Code is never run because an index names it: an index of a model with code, or of
    a custom method, needs -m and --method.

    With --queries and --qrels it prints how well your own queries are answered: by text, by vectors, and by both.

    Examples:
        afterword search tickets "a parcel that never came"
        afterword search tickets "refund" --by text --top 3
        afterword search tickets --queries queries.jsonl --qrels judged.tsv
    """
    from ..search.find import Search, find, resolve_by
    from ..search.index import Index

    if (judged_queries is None) != (qrels is None):
        missing = "--queries" if judged_queries is None else "--qrels"
        raise typer.BadParameter("pass both --queries and --qrels", param_hint=missing)
    if judged_queries is not None and (query or input is not None):
        raise typer.BadParameter("the queries are those of --queries: leave out QUERY and --input", param_hint="QUERY")
    index = Index.open(folder)
    settings = Search(top, by, where, exact, each)
    by_text = resolve_by(index, settings) == "text"
    choice = ModelChoice(model or "", device, dtype, max_length, revision, trust_remote_code)

    def vectors_of(texts: list[str]) -> Any:
        if by_text:
            return None
        encoder = encoder_of(index, choice, method)
        return encoder.encode_query(texts, index.info.query_prompt_name, on_long=on_long, on_empty="nan")

    if judged_queries is not None and qrels is not None:
        typer.echo("\n".join(measured(index, (judged_queries, qrels), settings, vectors_of, as_json)))
        return 0
    form = read_form(delimiter, encoding, no_header)
    with closing(open_reader([" ".join(query)] if query else None, input, format, field, form=form)) as reader:
        texts = read_queries(reader)
    results = find(index, texts, vectors_of(texts), settings)
    typer.echo("\n".join(_json(results) if as_json else page(results)))
    for line in notes(results, by_text, where):
        say(line)
    return 0


def measured(
    index: Index, files: tuple[Path, Path], settings: Search, vectors_of: Callable[[list[str]], Any], as_json: bool
) -> list[str]:
    """A line of JSON, or a table with a row for each way of searching and the number of queries below.

    Args:
        index: the index.
        files: of the queries, and of their judgements.
        settings: `by` chooses one way; None = all that the index has.
        vectors_of: embeds queries.
        as_json: whether the line is of JSON.
    """
    from ..search.qrels import METRICS, measure, read_qrels, read_query_file, select

    judged = select(index, read_query_file(files[0]), read_qrels(files[1]))
    if judged.missing:
        say(
            f"warning: {len(judged.missing):,} of {plural(judged.documents, 'judged document')} not in the index, such "
            f"as {judged.missing[0]!r:.60}: they count as not found"
        )
    vectors = vectors_of(list(judged.queries.values()))
    ways: tuple[By, ...] = ("hybrid", "vector", "text") if index.info.text_search else ("vector",)
    ways = ways if settings.by is None else (settings.by,)
    scores = {by: measure(index, judged, vectors, replace(settings, by=by)) for by in ways}
    if as_json:
        counts = {"queries": len(judged.queries), "skipped": judged.skipped, "not_in_index": len(judged.missing)}
        return [json.dumps({**counts, "by": scores})]
    columns = [Column(list(scores), "text", "by")]
    columns += [Column([f"{one[name]:.4f}" for one in scores.values()], "score", name) for name in METRICS]
    skipped = f"; skipped {judged.skipped:,} without a relevant document" if judged.skipped else ""
    count = f"{len(judged.queries):,} {'query' if len(judged.queries) == 1 else 'queries'}"
    return [*table(columns, page_width()), count + skipped]


def notes(found: Sequence[Result], by_text: bool, where: str | None) -> Iterator[str]:
    """Lines on queries whose words match no row; a word has a letter or a digit, as ICU breaks words."""
    without = [one for one in found if one.wordless or (by_text and not one.hits)]
    signs = sum(not any(sign.isalnum() for sign in one.query) for one in without)
    if signs:
        instead = "search --by vector" if by_text else "found by vectors alone"
        many = f"{_share(signs, len(found))} {'has' if signs == 1 else 'have'} no letter or digit"
        yield f"{many}, and text search finds words, not emoji or punctuation: {instead}"
    if not by_text and len(without) > signs:
        fits = " that fits --where" if where else ""
        yield f"found by vectors alone: no row{fits} has a word of {_share(len(without) - signs, len(found))}"


def _share(count: int, queries: int) -> str:
    return "the query" if queries == 1 else f"{count:,} of {queries:,} queries"


def read_queries(reader: Reader) -> list[str]:
    """Read the queries of an input.

    Raises:
        DataError: a row has no query, or there is none.
    """
    from ..jobs.rows import items_of

    items = list(items_of(reader, None, None, []))
    for item in items:
        if item.problem is not None:
            raise DataError(f"query {item.line} {item.problem}: write what to search for")
    if not items:
        raise DataError("no query: write one after the folder, or give --input FILE")
    return [item.text or "" for item in items]


def _json(found: Sequence[Result]) -> list[str]:
    """A line of JSON for each query; kept values are written as `embed` writes them."""
    from ..jobs.rows import as_json

    return [
        json.dumps(
            {"query": one.query, "hits": [{**vars(hit), "kept": as_json(hit.kept)} for hit in one.hits]},
            ensure_ascii=False,
        )
        for one in found
    ]


def page(found: Sequence[Result]) -> list[str]:
    """The lines of a page: a block for each query, with a row for each hit."""
    lines: list[str] = []
    for one in found:
        lines += [""] * bool(lines) + ([one.query] if len(found) > 1 else [])
        lines += table(_columns(one), page_width()) if one.hits else ["no row was found"]
    return lines


def _columns(found: Result) -> list[Any]:
    from ..jobs.rows import as_json

    hits = found.hits
    kept = list(hits[0].kept)
    return [
        Column([f"{hit.score:.4f}" for hit in hits], "label", "score"),
        Column([hit.id for hit in hits], "text", "id"),
        *(Column([_cell(as_json(hit.kept[name])) for hit in hits], "text", _head(name)) for name in kept),
        Column([hit.text for hit in hits], "text", "text"),
    ]


def _head(name: str) -> str:
    """The head of a kept column, as the lists of `duplicates` have it."""
    return f"kept_{name}" if name in ("score", "id", "text") else name


def _cell(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)
