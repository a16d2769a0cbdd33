"""``afterword index``: build an index of texts, or update it."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from . import options as o
from .chunked import read_chunking
from .index_status import maintain
from .index_stored import build_from
from .indexing import IndexWanted, Tuning, build, check_names
from .inputs import check_one, open_reader, read_form
from .keep import read_keep
from .model import ModelChoice, check_condition, read_methods


def index(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder of the index.")],
    model: Annotated[
        str | None,
        typer.Option("-m", "--model", metavar="MODEL", show_default=False, help="The model, as for `afterword embed`."),
    ] = None,
    input: o.Input = None,
    stored: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="PATH",
            help="Take texts and vectors of this .parquet file of `afterword embed`, or of a finished job's folder. "
            "-m names the model that they were made by.",
        ),
    ] = None,
    format: o.Format = None,
    field: o.Field = None,
    delimiter: o.Delimiter = None,
    encoding: o.Encoding = None,
    no_header: o.NoHeader = False,
    id: Annotated[
        str | None,
        typer.Option(
            "--id",
            metavar="NAME",
            help="The column or field that holds each text's id. Default: a hash of the text, so equal texts are one.",
        ),
    ] = None,
    keep: o.Keep = None,
    method: o.Method = None,
    prompt_name: Annotated[
        str | None,
        typer.Option(
            "--prompt-name",
            metavar="NAME",
            help="Put the model's prompt of this name in front of every text. Default: its prompt for documents.",
        ),
    ] = None,
    query_prompt_name: Annotated[
        str | None,
        typer.Option(
            "--query-prompt-name",
            metavar="NAME",
            help="The model's prompt for queries. Default: the one named query, if there is one.",
        ),
    ] = None,
    chunk: Annotated[
        str | None,
        typer.Option(
            "--chunk",
            metavar="HOW",
            help="Split texts, each chunk a row: N tokens, sentences, paragraphs, or sentences:N for as many as fit.",
        ),
    ] = None,
    late: Annotated[
        bool,
        typer.Option("--late", help="Late chunking: a chunk's vector is taken from a forward of its whole text."),
    ] = False,
    overlap: o.Overlap = None,
    language: Annotated[
        str | None,
        typer.Option(
            "--language",
            metavar="NAME",
            help="Language of the text index, such as English or German: its stems; or none. "
            "Default: English, or none where most letters are not Latin.",
        ),
    ] = None,
    no_text_search: Annotated[bool, typer.Option("--no-text-search", help="Build no text index.")] = False,
    exact: Annotated[
        bool, typer.Option("--exact", help="No vector index: every search compares all vectors, however many.")
    ] = False,
    kind: Annotated[
        str | None,
        typer.Option(
            "--kind", metavar="KIND", help="Kind of vector index: sq or pq. Default: none below 100,000 rows, else sq."
        ),
    ] = None,
    prune: Annotated[bool, typer.Option("--prune", help="Delete what the input no longer has.")] = False,
    status: Annotated[bool, typer.Option("--status", help="Print what is in the index, and nothing else.")] = False,
    optimize: Annotated[
        bool, typer.Option("--optimize", help="Only put new rows into the indexes, and remove old versions.")
    ] = False,
    max_length: o.MaxLength = None,
    on_long: o.OnLong = "warn",
    batch_tokens: o.BatchTokens = None,
    window: o.Window = 2048,
    device: o.Device = None,
    dtype: o.Dtype = None,
    revision: o.Revision = None,
    trust_remote_code: o.Trust = False,
    rejects: o.RejectsFile = None,
    as_json: o.AsJson = False,
    progress: o.Progress = None,
) -> int:
    """Build an index of texts, or update it: texts that are in it are not embedded again.

    Search it by `afterword search`. A row that cannot be embedded is left out and listed, and the run ends with exit
    code 1.

    Examples:
        afterword index tickets -m minilm -i tickets.csv --column body --id id
        afterword index tickets --status
    """
    from ..search.tune import KINDS

    check_one(status=status or None, optimize=optimize or None)
    if kind is not None and kind not in KINDS:
        raise typer.BadParameter(f"{kind!r}: write {' or '.join(KINDS)}", param_hint="--kind")
    if kind is not None and exact:
        raise typer.BadParameter("it is a kind of index, and --exact asks for none", param_hint="--kind")
    if status or optimize:
        others = {"--input": input, "--from": stored, "--prune": prune, "--keep": keep}
        for option in (name for name, value in others.items() if value):
            raise typer.BadParameter(
                f"it goes with rows, and --{'status' if status else 'optimize'} takes none", param_hint=option
            )
        return maintain(folder, optimize, as_json)
    if model is None:
        raise typer.BadParameter("Give one, such as -m minilm.", param_hint="--model")
    methods = read_methods([method] if method else None)
    check_condition(methods.values(), "another template", False)
    wanted = IndexWanted(
        folder,
        ModelChoice(model, device, dtype, max_length, revision, trust_remote_code),
        methods,
        {
            "prompt": None, "prompt_name": prompt_name, "normalize_embeddings": False, "truncate_dim": None,
            "batch_tokens": batch_tokens, "on_long": on_long,
        },
        chunk or "", read_chunking(chunk, late, 1, False, overlap), id, _read_keep(folder, keep), query_prompt_name,
        language or "", not no_text_search, prune, Tuning(exact, kind), rejects,
        window, progress,
    )  # fmt: skip
    if stored is not None:
        for name, value in {"input": input, "chunk": chunk}.items():
            if value is not None:
                raise typer.BadParameter(f"it takes stored vectors: leave out --{name}", param_hint="--from")
        return build_from(wanted, stored, keep is None)
    beside = {"--keep": wanted.keep, "--id": [id] if id is not None and id not in wanted.keep else []}
    form = read_form(delimiter, encoding, no_header)
    with closing(open_reader(None, input, format, field, beside, form)) as reader:
        return build(wanted, reader)


def _read_keep(folder: Path, keep: list[str] | None) -> list[str]:
    """The names of the columns to keep: those that the index has, and --keep."""
    from ..search.index import Index, exists

    names = read_keep(keep, ())
    check_names(names)
    return list(dict.fromkeys([*(Index.open(folder).kept if exists(folder) else []), *names]))
