"""``afterword search``: the rows of an index that fit a query."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..errors import DataError
from . import options as o
from .console import say
from .inputs import open_reader, read_form
from .judging import check_judging, judge_index
from .model import ModelChoice
from .page import Column, page_width, table
from .searching import encoder_of

if TYPE_CHECKING:
    from ..files.lines import Reader
    from ..index.find import Found

By = Literal["hybrid", "vector", "text"]


def search(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder of the index.")],
    queries: Annotated[
        list[str] | None, typer.Argument(metavar="QUERY", help="Queries. Default: those of --input or stdin.")
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
            help="Judge the index: search for the queries of this .jsonl, .csv, .tsv or .parquet file, with an id "
            "(_id or id) and a text in each row, and print nDCG@10, recall@10 and MRR@10 by --qrels.",
        ),
    ] = None,
    qrels: Annotated[
        Path | None,
        typer.Option(
            "--qrels",
            metavar="FILE",
            help="The judgements: BEIR's table of query-id, corpus-id and score, the same fields in .jsonl, or TREC's "
            "four columns. A document with a score above 0 is relevant.",
        ),
    ] = None,
    top: Annotated[
        int | None,
        typer.Option("--top", min=1, max=1_000_000, metavar="N", help="Number of rows a query. Default: 10."),
    ] = None,
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

    The model is the one that the index names, and is refused if it gives other vectors. Code is never run because an
    index names it: an index of a model with code, or of a method of your own, needs -m and --method.

    With --queries and --qrels it judges the index by your own queries: by text, by vectors, and by both.
    """
    from ..index.find import Asked, find, way_of
    from ..index.index import Index

    index = Index.open(folder)
    asked = Asked(top or 10, by, where, exact, each)
    way = way_of(index, asked)
    form = read_form(delimiter, encoding, no_header)
    given = ModelChoice(model or "", device, dtype, max_length, revision, trust_remote_code)

    def vectors_of(texts: list[str]) -> Any:
        if way == "text":
            return None
        encoder = encoder_of(index, given, method)
        return encoder.encode_query(texts, index.info.query_prompt_name, on_long=on_long, on_empty="nan")

    if judged_queries is not None or qrels is not None:
        files = check_judging(
            judged_queries, qrels, texts=queries, input=input, format=format, column=field, delimiter=delimiter,
            encoding=encoding, no_header=no_header, top=top,
        )  # fmt: skip
        typer.echo("\n".join(judge_index(index, files, asked, vectors_of, as_json)))
        return 0
    with closing(open_reader(queries, input, format, field, form=form)) as reader:
        texts = read_queries(reader)
    found = find(index, texts, vectors_of(texts), asked)
    typer.echo("\n".join(_json(found) if as_json else page(found)))
    for line in notes(found, way == "text", where):
        say(line)
    return 0


def notes(found: Sequence[Found], by_text: bool, where: str | None) -> Iterator[str]:
    """What is said of queries by whose words no row was found; a word has a letter or a digit, as ICU breaks words."""
    without = [one for one in found if one.wordless or (by_text and not one.hits)]
    signs = sum(not any(sign.isalnum() for sign in one.query) for one in without)
    if signs:
        instead = "--by vector compares what they mean" if by_text else "found by vectors alone"
        many = f"{_share(signs, len(found))} {'has' if signs == 1 else 'have'} no letter or digit"
        yield f"{many}, and text search finds words, not emoji or punctuation: {instead}"
    if not by_text and len(without) > signs:
        fits = " that fits --where" if where else ""
        yield f"found by vectors alone: no row{fits} has a word of {_share(len(without) - signs, len(found))}"


def _share(count: int, queries: int) -> str:
    return "the query" if queries == 1 else f"{count:,} of {queries:,} queries"


def read_queries(reader: Reader) -> list[str]:
    """The queries of an input.

    Raises:
        DataError: a row holds none, or there is none.
    """
    from ..jobs.items import items_of

    items = list(items_of(reader, None, None, []))
    for item in items:
        if item.problem is not None:
            raise DataError(f"query {item.line} {item.problem}: write what to search for")
    if not items:
        raise DataError("there is no query: write one behind the folder, or give --input FILE")
    return [item.text or "" for item in items]


def _json(found: Sequence[Found]) -> list[str]:
    """A line of JSON for each query; kept values are written as `embed` writes them."""
    from ..jobs.items import as_json

    return [
        json.dumps(
            {"query": one.query, "hits": [{**vars(hit), "kept": as_json(hit.kept)} for hit in one.hits]},
            ensure_ascii=False,
        )
        for one in found
    ]


def page(found: Sequence[Found]) -> list[str]:
    """The lines of a page: a block for each query, with a row for each hit."""
    lines: list[str] = []
    for one in found:
        lines += [""] * bool(lines) + ([one.query] if len(found) > 1 else [])
        lines += table(_columns(one), page_width()) if one.hits else ["no row was found"]
    return lines


def _columns(found: Found) -> list[Any]:
    from ..jobs.items import as_json

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
