"""``afterword embed``: texts to vectors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import chunked
from . import options as o
from .chunked import Chunking
from .fitting import Fit
from .inputs import check_one, items_of, open_reader, read_form
from .keep import read_keep, with_kept
from .made_by import made_by
from .model import VECTOR, MethodsEmbedder, ModelChoice, check_condition, read_methods
from .progress import say_loading
from .write_rows import opened, output_to, write_rows

COLUMNS = {"text": "text"}

if TYPE_CHECKING:
    from ..jobs.items import Item
    from ..jobs.output_file import Output
    from ..jobs.windows import Progress


def embed(
    model: o.Model,
    texts: Annotated[
        list[str] | None, typer.Argument(metavar="TEXT", help="Texts to embed. Default: those of --input or stdin.")
    ] = None,
    input: o.Input = None,
    output: o.Output = None,
    format: o.Format = None,
    field: o.Field = None,
    delimiter: o.Delimiter = None,
    encoding: o.Encoding = None,
    no_header: o.NoHeader = False,
    keep: o.Keep = None,
    method: o.Methods = None,
    prompt: o.Prompt = None,
    prompt_name: o.PromptName = None,
    condition: Annotated[
        str | None,
        typer.Option("--condition", metavar="TEXT", help="The value of {condition} in the template, for every text."),
    ] = None,
    condition_field: Annotated[
        str | None,
        typer.Option("--condition-field", metavar="NAME", help="The column or field that holds each text's condition."),
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
    post: Annotated[
        str | None,
        typer.Option(
            "--post",
            metavar="STEPS",
            help="Post-processing steps, after those of the folder: normalise, whiten:dimensions=256+normalise, ...",
        ),
    ] = None,
    fit: Annotated[
        Path | None,
        typer.Option(
            "--fit",
            metavar="FILE",
            help="Fit the method (tfidf, sif, remove_biases) and the steps (centre, whiten, ...) to the texts of this "
            "file.",
        ),
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option("--save", metavar="DIR", help="Save the encoder to this folder, with its fitted parts."),
    ] = None,
    normalize: o.Normalize = False,
    truncate_dim: o.TruncateDim = None,
    max_length: o.MaxLength = None,
    on_long: o.OnLong = "warn",
    batch_tokens: o.BatchTokens = None,
    window: o.Window = 2048,
    device: o.Device = None,
    dtype: o.Dtype = None,
    products: o.Products = None,
    revision: o.Revision = None,
    trust_remote_code: o.Trust = False,
    rejects: o.RejectsFile = None,
    overwrite: o.Overwrite = False,
    progress: o.Progress = None,
) -> int:
    """Embed texts: each row of the input gives one row of the output, or one for each chunk of its text.

    A row that cannot be embedded (blank, not a string, a corrupt line) gives a null row and is listed. The run
    continues, and ends with exit code 1.
    """
    from ..jobs.windows import Embedding

    methods = read_methods(method)
    if len(methods) > 1 and (condition or condition_field):
        raise typer.BadParameter("a condition goes with one method", param_hint="--condition")
    check_one(prompt=prompt, prompt_name=prompt_name)
    check_one(condition=condition, condition_field=condition_field)
    conditioned = condition is not None or condition_field is not None
    check_condition(methods.values(), "--condition or --condition-field", conditioned)
    chunking = Chunking.read(chunk, late, len(methods), conditioned)
    own = COLUMNS if chunking is None else chunked.COLUMNS
    kept = read_keep(keep, [*own, *(methods or [VECTOR])])
    fitted = Fit.read(fit, post, methods, save, (output, rejects))
    settings = {
        "prompt": prompt, "prompt_name": prompt_name, "normalize_embeddings": normalize,
        "truncate_dim": truncate_dim, "batch_tokens": batch_tokens, "on_long": on_long,
    }  # fmt: skip
    given = {
        "verb": "embed", "--method": method or [], "--prompt": prompt, "--prompt-name": prompt_name,
        "--normalize": normalize, "--truncate-dim": truncate_dim, "--max-length": max_length, "--on-long": on_long,
        "--condition": condition, "--condition-field": condition_field, "--dtype": dtype, "--products": products,
        "--window": window, "--keep": kept, "--post": post, "--fit": fitted.digest,
        **({} if chunking is None else {"--chunk": chunk, "--late": late}),
    }  # fmt: skip
    target = output_to(output, rejects, own, input, len(methods), model=model, settings=given, overwrite=overwrite)
    beside = {"--keep": kept, "--condition-field": [condition_field] if condition_field else []}
    reader = open_reader(texts, input, format, field, beside, read_form(delimiter, encoding, no_header))
    target = with_kept(target, kept, reader)
    with opened(target) as store:
        say_loading(model, progress)
        choice = ModelChoice(model, device, dtype, max_length, revision, trust_remote_code, products)
        embedder = fitted.apply(MethodsEmbedder.open(choice, methods, settings))
        infos = {} if target.path is None else made_by(embedder.encoder, embedder.methods, settings, model, target)

        rows = items_of(reader, condition, condition_field, kept)
        rows = rows if chunking is None else chunking.items(rows, embedder)

        def encode(items: Sequence[Item], done: Progress) -> dict[str, Any]:
            if chunking is not None:
                return chunking.encode(items, embedder, done)
            conditions = [item.beside for item in items] if conditioned else None
            return embedder([item.text or "" for item in items], conditions, done)

        beside_vectors = columns if chunking is None else chunked.columns
        return write_rows(
            reader, rows, Embedding(encode, embedder.why_nan, lambda items: beside_vectors(items, target)), store,
            target, infos, embedder.encoder.device.type, window=window, progress=progress,
        )  # fmt: skip


def columns(items: Sequence[Item], output: Output) -> dict[str, list[Any]]:
    """The columns that are written beside the vectors."""
    from ..jobs.items import kept_columns

    kinds = {name: kind for name, kind in output.columns.items() if name != "text"}
    return {"text": [item.text for item in items], **kept_columns(items, kinds, output.kind == "parquet")}
