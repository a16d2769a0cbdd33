"""``afterword embed``: texts to vectors, in a file, in a folder of shards, or on the standard output."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer
from typer import Argument, Option

from ..errors import TextsUnknown, plural
from ..jobs import CHUNK_COLUMNS, ID, JOB, PROBLEM, ROW, VECTOR, Listener
from . import options as o
from .console import REJECTED, Bar, clock_time, interruptible, say, say_loading
from .option_groups import (
    Form,
    Method,
    Model,
    Speed,
    check_condition,
    check_device,
    read_keep,
    stdin_bytes,
)

if TYPE_CHECKING:
    from ..files.read import Reader
    from ..jobs.job import JobResult
    from ..jobs.output import OutputFile
    from ..jobs.recipe import Chunking, MethodsEmbedder, Recipe
    from ..jobs.rows import Inputs
    from ..methods import AnyMethod
    from ..post import Post

# fmt: off
Texts = Annotated[list[str] | None, Argument(metavar="TEXT",
    help="Texts to embed. Default: those of --input or stdin.")]
Files = Annotated[list[Path] | None, Option("-i", "--input", metavar="FILE",
    help="Read texts from this .txt, .jsonl, .csv, .tsv or .parquet file; all but .parquet may be gzipped (.gz). - is "
    "stdin. For a job: several files, or folders of them.")]
Target = Annotated[str | None, Option("-o", "--output", metavar="PATH",
    help="Write vectors to a .jsonl, .parquet or .npy file; or, as FOLDER/, to the shards of a job. After an "
    "interruption, the same command resumes. Default: JSON lines to stdout.")]


@dataclass(frozen=True)
class Condition:
    """The value of {condition} in the template."""

    title: ClassVar = "Method"
    condition: Annotated[str | None, Option("--condition", metavar="TEXT",
        help="The value of {condition} in the template, for every text.")] = None
    condition_field: Annotated[str | None, Option("--condition-field", metavar="NAME",
        help="The column or field that holds each text's condition.")] = None


@dataclass(frozen=True)
class Chunks:
    """How texts are split."""

    title: ClassVar = "Method"
    chunk: Annotated[str | None, Option("--chunk", metavar="HOW",
        help="Split texts, a row each: N tokens, sentences, paragraphs, or sentences:N for as many as fit.")] = None
    late: Annotated[bool, Option("--late",
        help="Late chunking: a chunk's vector is taken from a forward of its complete text.")] = False
    overlap: Annotated[int | None, Option("--overlap", min=0, metavar="N",
        help="With --chunk N tokens: the number of tokens that a chunk shares with the chunk before it.")] = None

    def parse(self, methods: int, conditional: bool) -> Chunking | None:
        """How texts are split; for a number of methods, and for texts with or without conditions."""
        if self.chunk is None:
            if self.late or self.overlap is not None:
                hint = "--late" if self.late else "--overlap"
                raise typer.BadParameter("needs chunks: pass --chunk 128 or --chunk sentences", param_hint=hint)
            return None
        from ..jobs.recipe import Chunking

        if conditional or (self.late and methods > 1):
            hint = "--chunk" if conditional else "--late"
            raise typer.BadParameter("takes one method, and no condition", param_hint=hint)
        return Chunking.parse(self.chunk, self.late, self.overlap)


@dataclass(frozen=True)
class Jobs:
    """Options that only a job in a folder has."""

    title: ClassVar = "Jobs"
    workers: Annotated[str | None, Option("--workers", metavar="N",
        help="Embed a job's shards in N processes, or auto.")] = None
    ray: Annotated[str | None, Option("--ray", metavar="ADDRESS",
        help="Embed a job's shards on Ray: auto or an address joins a cluster, local starts one.")] = None
    threads: Annotated[int | None, Option("--threads", min=1, metavar="N",
        help="Threads of each process of a job.")] = None
    shard_rows: Annotated[int | None, Option("--shard-rows", min=1, metavar="N",
        help="Maximum number of rows of a shard. Default: 1024.")] = None
    id: Annotated[str | None, Option("--id", metavar="NAME", help="The field whose values name a job's rows.")] = None
    no_text: Annotated[bool, Option("--no-text", help="Leave the texts out of a job's shards.")] = False
    dry_run: Annotated[bool, Option("--dry-run",
        help="Only print a job's rows, tokens, time and size, from a sample.")] = False


@dataclass(frozen=True)
class Fitting:
    """Fitting to texts, and the folder of the fitted encoder."""

    title: ClassVar = "Method"
    post: Annotated[str | None, Option("--post", metavar="STEPS",
        help="Post-processing steps, after those of the model: normalise, whiten:dimensions=256+normalise, ...")] = None
    fit: Annotated[Path | None, Option("--fit", metavar="FILE",
        help="Fit the method (tfidf, sif, remove_biases) and steps (centre, whiten, ...) to this file's texts.")] = None
    save: Annotated[Path | None, Option("--save", metavar="DIR",
        help="Save the encoder to this folder, with its fitted parts.")] = None
    # fmt: on

    def check(self, methods: Mapping[str, AnyMethod], overwrite: bool) -> None:
        """Validate the options before a model is loaded, and report rows without a text to fit on."""
        from ..files.atomic import check_folder
        from ..post import parse_post

        if len(methods) > 1 and (self.fit or self.save):
            raise typer.BadParameter("takes one method", param_hint="--fit" if self.fit else "--save")
        if self.save is not None:
            check_folder(self.save, overwrite)
        check_fit(self.fit, methods.values(), parse_post(self.post or "none"))
        if self.fit is not None:
            fit_texts(self.fit)


def embed(
    model: Model, form: Form, method: Method, condition: Condition, chunks: Chunks, fitting: Fitting, speed: Speed,
    jobs: Jobs, texts: Texts = None, input: Files = None, output: Target = None, keep: o.Keep = None,
    rejects: o.RejectsFile = None, overwrite: o.Overwrite = False,
) -> int:  # fmt: skip
    """Embed texts: each row of the input gives one row of the output, or one for each chunk of its text.

    A row that cannot be embedded (blank, not a string, a corrupt line) gives a null row and is listed. The run
    continues, and ends with exit code 1.

    Examples:
        afterword embed -m minilm "The bank raised its rates."
        afterword embed -m minilm -i tickets.csv --column body -o vectors.parquet
        afterword embed -m minilm -i texts.txt -o vectors/
    """
    from ..jobs.output import OutputFile
    from ..jobs.rows import Inputs, files_of, read_ahead

    folder, path = target_of(output, jobs)
    methods = method.methods()
    conditional = condition != Condition()
    check_condition(methods.values(), conditional)
    own = {"text": "text"} if chunks.chunk is None else CHUNK_COLUMNS
    kept = read_keep(keep, [*own, *(methods or [VECTOR]), ROW, PROBLEM, *([ID] if folder else [])])
    delimiter = form.form().delimiter
    inputs = Inputs((), keep=tuple(kept), **{**vars(form), **vars(condition), "delimiter": delimiter})
    with interruptible(lambda: kept_in(folder)):
        if folder is not None:
            if texts or not input or rejects or fitting.save or Path("-") in input:
                raise typer.BadParameter("a job reads --input FILE, lists rejects in its folder, and has no --save")
            keep = list(dict.fromkeys([*filter(None, [jobs.id]), *kept]))
            inputs = replace(inputs, files=files_of(input), keep=tuple(keep))
        elif input and len(input) > 1:
            raise typer.BadParameter("several files go into a job: write -o FOLDER/", param_hint="--input")
        elif input and input[0] != Path("-"):
            inputs = replace(inputs, files=tuple(input))
        columns = [*kept, *filter(None, [condition.condition_field])]
        listed = form.open(input[0] if input else None, texts, columns) if texts else None
        file = None if path is None else OutputFile(path, rejects, overwrite)
        if file is not None:
            file.check(inputs, len(methods))
        if inputs.files and inputs.files[0].is_file():  # mistakes are reported before torch is imported
            next(read_ahead(inputs.items()), None)
        model.located()
        fitting.check(methods, overwrite)
        chunks.parse(len(methods), conditional)
        check_device(model.device)
        recipe = recipe_of(model, method, speed, **vars(chunks), post=fitting.post, fit=fitting.fit)
        if folder is not None:
            return to_folder(folder, inputs, recipe, speed, jobs, overwrite)
    if file is not None:
        return to_file(file, inputs, listed, recipe, speed, fitting.save)
    return to_stdout(inputs, listed, recipe, speed, rejects, fitting.save, overwrite)


def target_of(output: str | None, jobs: Jobs) -> tuple[Path | None, Path | None]:
    """The folder of a job, or the file, that --output names; at most one of the two."""
    output = None if output == "-" else output
    path = None if output is None else Path(output)
    if path is not None and output and (output.endswith(("/", "\\")) or (path / JOB).is_file()):
        return path, None
    if path is not None and not path.suffix:
        raise typer.BadParameter(f"{output!r}: write {output}/ for the folder of a job, or {output}.parquet for a file")
    if jobs.dry_run:
        return path or Path(), None
    if jobs != Jobs():
        name = next(name for name, value in vars(jobs).items() if value != getattr(Jobs, name)).replace("_", "-")
        raise typer.BadParameter(f"--{name} is an option of a job: write -o FOLDER/")
    return None, path


def kept_in(folder: Path | None) -> str:
    """Say what an interruption keeps of a job; "" if there is no job."""
    if folder is None or not (folder / JOB).is_file():
        return ""
    from ..jobs.job import Job

    return Job.open(folder).kept()


def recipe_of(model: Model, method: Method, speed: Speed, **more: Any) -> Recipe:
    """Describe how vectors are made, from the options."""
    from ..jobs.recipe import Recipe

    load = {name: value for name, value in vars(model).items() if value and name != "model"}
    specs = tuple(dict.fromkeys(method.method or ()))
    return Recipe(model.model, specs, load, method.options(speed.batch_tokens), **more)


class JobBar(Listener):
    """The progress of a job: a bar, and the counts of its shards."""

    def __init__(self, progress: bool | None) -> None:
        self.progress, self.before, self.counts = progress, 0, Counter[str]()
        self.bar: Any = None

    def begin(self, rows: int, before: JobResult) -> None:
        """Draw the bar."""
        self.before = before.rows
        if before.rows:
            say(f"{plural(before.rows, 'row')} done before")
        self.bar = Bar("", "rows", rows, self.progress, done=before.rows).__enter__()

    def more(self, rows: float) -> None:
        """Count rows that were embedded; processes report every half second, also when there are none."""
        if rows:
            self.bar.update(rows)

    def done(self, number: int, counts: Mapping[str, int]) -> None:
        """Count a shard."""
        self.counts.update(counts)

    def __enter__(self) -> JobBar:
        return self

    def __exit__(self, *error: Any) -> None:
        """Stop the bar, and say how many texts were truncated, or are unknown."""
        if self.bar is not None:
            self.bar.__exit__(*error)
        cut, lost, unknown = (self.counts[name] for name in ("cut", "lost", "unknown"))
        if cut:
            say(f"warning: {plural(cut, 'text')} truncated, {lost:,} tokens dropped: --chunk keeps them")
        if unknown:
            say(f"warning: {TextsUnknown(unknown)}")


def to_folder(folder: Path, inputs: Inputs, recipe: Recipe, speed: Speed, jobs: Jobs, overwrite: bool) -> int:
    """Begin a job or resume it; returns the exit code."""
    from ..jobs.job import SHARD_ROWS, Job
    from ..jobs.run import run_by, run_job
    from ..jobs.shard import ShardWorker

    worker = ShardWorker.of(folder, inputs, recipe, no_text=jobs.no_text, window=speed.window, id=jobs.id)
    if jobs.dry_run:
        return print_estimate(inputs, recipe)
    workers: Any = int(jobs.workers) if jobs.workers and jobs.workers.isdigit() else jobs.workers
    run = run_by(workers, jobs.ray, jobs.threads, float((recipe.load.get("device") or "").startswith("cuda")))
    began = time.perf_counter()
    job = Job.create(worker, jobs.shard_rows or SHARD_ROWS, overwrite=overwrite)
    with JobBar(speed.progress) as bar:
        result = run_job(job, worker, run, bar)
    new, listing = result.rows - bar.before, folder / "rejects.jsonl"
    say(summary(result.rows, result.rejected, new, listing, time.perf_counter() - began, f" in {folder}"))
    if jobs.id is not None and result.complete and (wrong := job.wrong_ids()):
        say(f"warning: {wrong}: --id {jobs.id} does not name each row")
    return REJECTED if result.rejected or not result.complete else 0


def print_estimate(inputs: Inputs, recipe: Recipe) -> int:
    """Print the rows, tokens, time and size of a job."""
    from ..jobs.run import estimate

    found = estimate(inputs, recipe)
    print(f"rows    {found['rows']:,}, {found['rejected']:,} of them without a text")
    print(f"tokens  about {found['tokens']:,}")
    print(f"time    about {clock_time(found['seconds'])} in one process, by a sample of {found['sample']} texts")
    print(f"size    about {found['size'] / 1e6:,.1f} MB")
    return 0


def to_file(
    output: OutputFile, inputs: Inputs, listed: Reader | None, recipe: Recipe, speed: Speed, save: Path | None = None
) -> int:
    """Embed rows to a file by a job in a hidden folder; returns the exit code.

    The input is `listed`, if there is one, else the file of `inputs`, else the standard input.
    """
    from ..jobs.job import SHARD_ROWS, Job
    from ..jobs.output import finish, hidden_folder, kind_of
    from ..jobs.run import run_job
    from ..jobs.shard import ShardWorker

    embedders: list[MethodsEmbedder] = []

    def run(worker: Any, numbers: Sequence[int], bar: Any) -> None:
        say_loading(recipe.model, speed.progress)
        embed_shard = worker.start(bar.more)
        embedders.append(embed_shard.embedder)
        for number in numbers:
            bar.done(number, embed_shard(number))

    began = time.perf_counter()
    with hidden_folder(output) as folder, interruptible(lambda: kept_in(folder)):
        inputs, exact = rereadable(inputs, listed, folder), kind_of(output.path) == "jsonl"
        worker = ShardWorker.of(folder, inputs, recipe, exact=exact, window=speed.window)
        job = Job.create(worker, min(speed.window, SHARD_ROWS), overwrite=output.overwrite)
        with JobBar(speed.progress) as bar:
            result = run_job(job, worker, run, bar)
        rows = finish(job, output, worker.kinds)
    if not rows:
        say("warning: the input is empty")
    new = result.rows - bar.before
    say(summary(rows, result.rejected, new, output.listing, time.perf_counter() - began))
    if save is not None:
        (embedders or [recipe.open()])[0].encoder.save(save, output.overwrite)
    return REJECTED if result.rejected else 0


def rereadable(inputs: Inputs, listed: Reader | None, folder: Path) -> Inputs:
    """Copy input that can be read only once (texts, the standard input, a pipe) to a file in the folder."""
    from ..files.read import format_of
    from ..jobs.output import copy_input

    if listed is not None:
        return replace(inputs, files=(copy_input(folder, listed),), format="jsonl")
    if not inputs.files:
        return replace(inputs, files=(copy_input(folder, stdin_bytes()),), format=inputs.format or "txt")
    path = inputs.files[0]
    if path.is_file() or path.is_dir() or not path.exists():
        return inputs
    with path.open("rb") as pipe:
        return replace(inputs, files=(copy_input(folder, pipe),), format=inputs.format or format_of(path))


def to_stdout(
    inputs: Inputs, listed: Reader | None, recipe: Recipe, speed: Speed, listing: Path | None,
    save: Path | None = None, overwrite: bool = False,
) -> int:  # fmt: skip
    """Embed rows to the standard output, each window at once; arguments as for `to_file`."""
    from ..jobs.output import Rejects, check_some, json_lines
    from ..jobs.rows import embed_window, windows

    stdout, rows = typer.get_binary_stream("stdout"), 0

    def kept() -> str:
        return f"{plural(rows, 'row')} written to the standard output; with --output FILE, a run can be resumed"

    reader = listed or inputs.open(0, say)
    say_loading(recipe.model, speed.progress)
    with closing(reader), interruptible(kept), Rejects(listing, say) as rejects:
        embedder = recipe.open()
        empty, kinds = embedder.encode([]), {**recipe.columns, **{name: reader.kinds[name] for name in inputs.keep}}
        with Bar("", "rows", show=speed.progress) as bar:
            for part in windows(embedder.split(inputs.items_in(reader)), speed.window):
                bar.read(rows + len(part), reader.at, reader.total)
                vectors = embed_window(part, lambda some: embedder.encode(some, bar.update), embedder.why_nan, empty)
                stdout.write(json_lines(embedder.columns(part, kinds, False), vectors))
                stdout.flush()
                for row, item in enumerate(part, rows):
                    if item.problem is not None:
                        rejects.add(row, item.line, item.problem)
                rows += len(part)
    check_some(rows, rejects.count, listing)
    if not rows:
        say("warning: the input is empty")
    if rejects.count:
        say(summary(rows, rejects.count, rows, listing, bar.seconds))
    if save is not None:
        embedder.encoder.save(save, overwrite)
    return REJECTED if rejects.count else 0


def summary(rows: int, rejected: int, new: int, listing: Path | None, seconds: float, where: str = "") -> str:
    """The last line of a run, with the rate of the ``new`` rows that this run embedded.

    >>> summary(3, 0, 3, None, 1.0), summary(2000, 3, 500, Path("bad.jsonl"), 10.0)
    ('3 rows in 1.0 s (3 rows/s)', '2,000 rows, 500 of them in 10.0 s (50 rows/s); 3 rejected, listed in bad.jsonl')
    """
    line = f"{plural(rows, 'row')}{where}" + (f", {new:,} of them" if 0 < new < rows else "")
    speed = f" in {seconds:.1f} s ({new / max(seconds, 1e-9):.0f} rows/s)"
    line += ", none left to embed" if rows and not new else speed
    listed = f", listed in {listing}" if listing is not None else ""
    return f"{line}; {rejected:,} rejected{listed}" if rejected else line


def fit_texts(path: Path) -> list[str]:
    """The texts of a file to fit on; rows without a text are reported."""
    from ..jobs.rows import texts_to_fit

    texts, without = texts_to_fit(path)
    if without:
        say(f"warning: {path}: {without:,} of {len(texts) + without:,} rows hold no text to fit on")
    return texts


def check_fit(fit: object, methods: Iterable[AnyMethod], steps: Iterable[Post]) -> None:
    """Refuse --fit where no method and no step is fitted to texts, and its absence where one is."""
    from ..post import Unfitted, spelled

    unfitted = [str(member) for method in methods for member in method.members if not member.weigh.fitted]
    unfitted += [spelled([step]) for step in steps if isinstance(step, Unfitted)]
    if fit is None and unfitted:
        raise typer.BadParameter(f"{unfitted[0]} is fitted to texts: pass a file of them", param_hint="--fit")
    if fit is not None and not unfitted:
        raise typer.BadParameter("no method (tfidf, sif, ...) and no step (centre, whiten, ...) needs it: leave it out",
                                 param_hint="--fit")  # fmt: skip
