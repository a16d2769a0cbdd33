"""``afterword embed``: texts to vectors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypedDict, Unpack

import typer

from ..jobs import CHUNK_COLUMNS, VECTOR
from . import options as o
from .chunked import read_chunking
from .console import interruptible, say
from .embed_folder import (
    JOB_COLUMNS,
    JobOptions,
    check_job,
    embed_to_folder,
    going_on,
    one_file,
    output_of,
    read_files,
    recipe_of,
    settings_of,
)
from .fitting import Fit
from .inputs import check_one, open_reader, read_form
from .keep import read_keep
from .model import ModelChoice, check_condition, read_methods
from .progress import say_loading
from .write_rows import output_to, source_of, write_file, write_stream

if TYPE_CHECKING:
    from ..encoder import Encoder
    from ..files.lines import FileForm, Reader
    from ..jobs.output import OutputFile
    from ..jobs.recipe import JobRecipe
    from ..jobs.rows import Inputs as JobInputs

COLUMNS = {"text": "text"}
ENCODE = ("prompt", "prompt_name", "normalize_embeddings", "truncate_dim", "batch_tokens", "on_long")
"""Arguments of `Encoder.encode` that options of the command give; ``SPELLED`` has those of another name."""
SPELLED = {"normalize_embeddings": "normalize"}
GIVEN = (
    "prompt", "prompt_name", "normalize", "truncate_dim", "max_length", "on_long", "condition", "condition_field",
    "dtype", "window", "post",
)  # fmt: skip
"""Options that the rows of the output depend on."""

Inputs = Annotated[
    list[Path] | None,
    typer.Option(
        "-i", "--input", metavar="FILE",
        help="Read texts from this .txt, .jsonl, .csv, .tsv or .parquet file; all but .parquet may be gzipped (.gz). "
        "- is stdin. For a job: several files, or folders of them.",
    ),
]  # fmt: skip
Target = Annotated[
    str | None,
    typer.Option(
        "-o", "--output", metavar="PATH",
        help="Write vectors to this .jsonl, .parquet or .npy file; or, as FOLDER/, to shards in a folder, which the "
        "same command goes on with after any interruption. Default: JSON lines to stdout.",
    ),
]  # fmt: skip
Workers = Annotated[
    str | None,
    typer.Option("--workers", metavar="N", help="Embed a job's shards in so many processes, or auto."),
]
Ray = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="ADDRESS",
        help="Embed a job's shards on Ray: auto or an address joins a cluster, local starts one.",
    ),
]
Threads = Annotated[int | None, typer.Option("--threads", min=1, metavar="N", help="Threads of each process of a job.")]
ShardRows = Annotated[
    int | None, typer.Option("--shard-rows", min=1, metavar="N", help="Most rows of a shard. Default: 1024.")
]
MaxRejects = Annotated[
    int | None, typer.Option("--max-rejects", min=0, metavar="N", help="End a job when more rows have no vector.")
]
Id = Annotated[str | None, typer.Option("--id", metavar="NAME", help="The field whose values name a job's rows.")]
NoText = Annotated[bool, typer.Option("--no-text", help="Leave the texts out of a job's shards.")]
Sample = Annotated[int, typer.Option("--sample", min=0, hidden=True)]  # what `job verify` asks for
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Only tell the rows, tokens, time and size of a job, from a sample.")
]


def embed(
    model: o.Model,
    texts: Annotated[
        list[str] | None, typer.Argument(metavar="TEXT", help="Texts to embed. Default: those of --input or stdin.")
    ] = None,
    input: Inputs = None,
    output: Target = None,
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
    overlap: o.Overlap = None,
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
    revision: o.Revision = None,
    trust_remote_code: o.Trust = False,
    rejects: o.RejectsFile = None,
    overwrite: o.Overwrite = False,
    workers: Workers = None,
    ray: Ray = None,
    threads: Threads = None,
    shard_rows: ShardRows = None,
    max_rejects: MaxRejects = None,
    id: Id = None,
    no_text: NoText = False,
    dry_run: DryRun = False,
    sample: Sample = 0,
    progress: o.Progress = None,
) -> int:
    """Embed texts: each row of the input gives one row of the output, or one for each chunk of its text.

    A row that cannot be embedded (blank, not a string, a corrupt line) gives a null row and is listed. The run
    continues, and ends with exit code 1.

    Examples:
        afterword embed -m minilm "The bank raised its rates."
        afterword embed -m minilm -i tickets.csv --column body -o vectors.parquet
        afterword embed -m minilm -i texts.txt -o vectors/
    """
    command = dict(locals())
    only_jobs = JobOptions(workers, ray, threads, shard_rows, max_rejects, id, no_text, dry_run, sample, device)
    folder, path = output_of(output, only_jobs)
    with interruptible(lambda: going_on(folder, only_jobs)):
        methods = read_methods(method)
        if len(methods) > 1 and (condition or condition_field):
            raise typer.BadParameter("a condition goes with one method", param_hint="--condition")
        check_one(prompt=prompt, prompt_name=prompt_name)
        check_one(condition=condition, condition_field=condition_field)
        conditioned = condition is not None or condition_field is not None
        check_condition(methods.values(), "--condition or --condition-field", conditioned)
        chunking = read_chunking(chunk, late, len(methods), conditioned, overlap)
        own = COLUMNS if chunking is None else CHUNK_COLUMNS
        kept = read_keep(keep, [*own, *(methods or [VECTOR]), *(JOB_COLUMNS if folder else ())])
        fitted = Fit.read(fit, post, methods, save, (path, rejects), overwrite)
        settings = {name: command[SPELLED.get(name, name)] for name in ENCODE}
        given = given_by(command, kept, fitted.digest)
        choice = ModelChoice(model, device, dtype, max_length, revision, trust_remote_code)
        form = read_form(delimiter, encoding, no_header)
        if folder is not None:
            check_job(texts, input, rejects, save)
            files = read_files(input or [], format, field, kept, id, form, condition, condition_field)
            recipe = recipe_of(choice, method, settings, condition, condition_field, chunking, fitted)
            return embed_to_folder(
                folder, files, recipe, model, window, given, only_jobs, columns=own, overwrite=overwrite,
                progress=progress, command=command,
            )  # fmt: skip
        source = one_file(input)
        inputs = inputs_of(format, field, kept, form, condition, condition_field)
        if source is not None and source.is_file():
            _check_first_rows(texts, source, inputs)
        target = output_to(path, rejects, source, len(methods), bool(kept), overwrite)
        choice.located()
        recipe = recipe_of(choice, method, settings, condition, condition_field, chunking, fitted)
    shown: Shown = {
        "window": window, "progress": progress, "save": None if save is None else lambda one: one.save(save, overwrite),
        "note": "" if fitted.texts is None else f"fitted to {len(fitted.texts):,} texts",
    }  # fmt: skip
    if target is None:
        return to_stream(model, recipe, inputs, texts, source, own, rejects, **shown)
    return to_file(model, recipe, inputs, texts, source, own, target, given, **shown)


def _check_first_rows(texts: Sequence[str] | None, source: Path, inputs: JobInputs) -> None:
    """Read the first rows of a file, so that a wrong column or encoding is reported before torch is imported."""
    from ..jobs.rows import items_of, read_ahead

    with closing(_reader(texts, source, inputs)) as reader:
        next(read_ahead(items_of(reader, inputs.condition, inputs.condition_field, inputs.keep)), None)


class Shown(TypedDict):
    """What else a run does; see `write_rows.write_file`."""

    window: int
    progress: bool | None
    save: Callable[[Encoder], object] | None
    note: str


def inputs_of(
    kind: str | None, field: str | None, kept: Sequence[str], form: FileForm, condition: str | None, named: str | None
) -> JobInputs:
    """How the input is read, without its file."""
    from ..jobs.rows import Inputs

    return Inputs((), kind, field, (*kept,), form, condition, named)


def to_stream(
    model: str,
    recipe: JobRecipe,
    inputs: JobInputs,
    texts: Sequence[str] | None,
    source: Path | None,
    columns: Mapping[str, Any],
    rejects: Path | None,
    **shown: Unpack[Shown],
) -> int:
    """Embed rows to the standard output."""
    from ..jobs.rows import items_of

    with closing(_reader(texts, source, inputs)) as reader:
        items = items_of(reader, inputs.condition, inputs.condition_field, inputs.keep)
        say_loading(model, shown["progress"])
        rows = recipe.open()
        if shown["note"]:
            say(shown["note"])
        kinds = {**columns, **{name: reader.kinds[name] for name in inputs.keep}}
        code = write_stream(
            reader, rows.split(items), rows.embedding(kinds, False), rejects, window=shown["window"],
            progress=shown["progress"],
        )  # fmt: skip
        if shown["save"] is not None:
            shown["save"](rows.embedder.encoder)
        return code


def to_file(
    model: str,
    recipe: JobRecipe,
    inputs: JobInputs,
    texts: Sequence[str] | None,
    source: Path | None,
    columns: Mapping[str, Any],
    target: OutputFile,
    given: Mapping[str, Any],
    **shown: Unpack[Shown],
) -> int:
    """Embed rows to a file, by a job."""
    listed = _reader(texts, source, inputs) if texts else None
    settings = settings_of(model, given, inputs.field, inputs.kind, inputs.form)

    def opened(folder: Path) -> JobInputs:
        file, kind, copied = source_of(folder, listed, source, inputs.kind)
        return replace(inputs, files=(file,), kind=kind, spooled=copied)

    return write_file(target, opened, recipe, columns, settings, model, **shown)


def _reader(texts: Sequence[str] | None, source: Path | None, inputs: JobInputs) -> Reader:
    columns = {"--keep": inputs.keep, "--condition-field": [inputs.condition_field] if inputs.condition_field else []}
    return open_reader(texts, source, inputs.kind, inputs.field, columns, inputs.form)


def given_by(command: Mapping[str, Any], kept: Sequence[str], digest: str | None) -> dict[str, Any]:
    """What the rows of the output depend on, by the names of the options.

    Args:
        command: the value of each parameter of `embed`.
        kept: the columns to keep.
        digest: a hash of the texts that are fitted on.
    """
    named = {f"--{name.replace('_', '-')}": command[name] for name in GIVEN}
    chunks = {} if command["chunk"] is None else {"--chunk": command["chunk"], "--late": command["late"]}
    chunks |= {"--overlap": command["overlap"]} if command["overlap"] else {}
    return {"verb": "embed", "--method": command["method"] or [], **named, "--keep": kept, "--fit": digest, **chunks}
