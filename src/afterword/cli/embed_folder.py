"""``afterword embed -o FOLDER/``: a job of shards, by one process, several, or Ray."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ..errors import JobError, TextsUnknown, plural
from ..jobs import JOB, PROBLEM, ROW
from .console import REJECTED, interruptible, say
from .progress import RowsBar, clock_time

if TYPE_CHECKING:
    from ..files.lines import FileForm
    from ..jobs.job import Job, JobResult
    from ..jobs.recipe import Chunking, JobRecipe
    from ..jobs.rows import Inputs
    from ..jobs.run import Run
    from ..jobs.shard import ShardWorker
    from .fitting import Fit
    from .model import ModelChoice


JOB_COLUMNS = (ROW, PROBLEM, "id")


@dataclass(frozen=True)
class JobOptions:
    """The options of `embed` that a file does not have.

    Args:
        workers: the number of processes, or "auto"; None = this process.
        ray: the address of a Ray cluster; "local" starts one here; None = no Ray.
        threads: of each process.
        shard_rows: the most rows of a shard.
        max_rejects: end the run when more rows have no vector.
        id: the field that names rows.
        no_text: leave the texts out of the shards.
        dry_run: only tell what the job would take.
        sample: only embed so many shards again, and compare.
        device: of each process; on Ray, one that names cuda takes a GPU.
    """

    workers: str | None = None
    ray: str | None = None
    threads: int | None = None
    shard_rows: int | None = None
    max_rejects: int | None = None
    id: str | None = None
    no_text: bool = False
    dry_run: bool = False
    sample: int = 0
    device: str | None = None

    def check(self) -> None:
        """Validate the number of processes.

        Raises:
            typer.BadParameter: --workers is neither a number of processes nor auto.
        """
        if self.workers is not None and self.workers != "auto" and not (self.workers.isdigit() and int(self.workers)):
            raise typer.BadParameter(f"{self.workers!r}: give a number of processes, or auto", param_hint="--workers")

    @property
    def given(self) -> list[str]:
        """The options that only a folder has, as far as they are given."""
        named = {
            "--workers": self.workers, "--ray": self.ray, "--threads": self.threads, "--shard-rows": self.shard_rows,
            "--max-rejects": self.max_rejects, "--id": self.id, "--no-text": self.no_text or None,
        }  # fmt: skip
        return [name for name, value in named.items() if value is not None]

    def run(self) -> Run:
        """What embeds the shards."""
        from ..jobs.run import run_by

        workers: Any = self.workers if self.workers in (None, "auto") else int(self.workers)
        gpus = 1.0 if (self.device or "").startswith("cuda") else 0.0
        return run_by(workers, self.ray, self.threads, gpus)


def output_of(output: str | None, options: JobOptions) -> tuple[Path | None, Path | None]:
    """The folder of a job, or the file, that --output names; at most one of the two.

    Raises:
        typer.BadParameter: an option of a job is given, and --output is no folder.
    """
    options.check()
    path = None if output is None else Path(output)
    if output is not None and path is not None and (output.endswith(("/", "\\")) or (path / JOB).is_file()):
        return path, None
    if options.given:
        if path is not None and (path.is_dir() or not path.suffix) and output != "-":
            return path, None
        raise typer.BadParameter("it goes with a folder: write -o FOLDER/", param_hint=options.given[0])
    return (path or Path(), None) if options.dry_run else (None, path)


def going_on(folder: Path | None, options: JobOptions) -> str:
    """What is said of a job that is interrupted before its shards are read; "" where there is nothing to go on with.

    Nothing is imported for it: the interruption may have left a library half imported.
    """
    begun = folder is not None and (folder / JOB).is_file() and not options.dry_run and not options.sample
    return f"what is finished is kept; the same command goes on with {folder}" if begun else ""


def check_job(texts: Sequence[str] | None, inputs: Sequence[Path] | None, *files: Path | None) -> None:
    """Refuse what a job does not have.

    Raises:
        typer.BadParameter: its texts are not in files; --rejects or --save is given.
    """
    if texts or not inputs or any(str(path) == "-" for path in inputs):
        raise typer.BadParameter("a job reads files, which another run can read again: give --input FILE")
    for name, file in zip(("--rejects", "--save"), files, strict=True):
        if file is not None:
            reason = "a job lists them in FOLDER/rejects.jsonl" if name == "--rejects" else "a job saves no encoder"
            raise typer.BadParameter(f"{reason}: leave it out", param_hint=name)


def one_file(inputs: Sequence[Path] | None) -> Path | None:
    """The input of a run that is no job.

    Raises:
        typer.BadParameter: there are several.
    """
    if inputs and len(inputs) > 1:
        raise typer.BadParameter("several files go into a job: write -o FOLDER/", param_hint="--input")
    return inputs[0] if inputs else None


def read_files(
    paths: Sequence[Path],
    kind: str | None,
    field: str | None,
    kept: Sequence[str],
    id: str | None,
    form: FileForm,
    condition: str | None,
    condition_field: str | None,
) -> Inputs:
    """The files of a job; its rows' ids are kept like other columns."""
    from ..jobs.rows import Inputs, files_of

    keep = (*([id] if id is not None else []), *kept)
    return Inputs(files_of(paths), kind, field, keep, form, condition, condition_field)


def say_forms(notes: Sequence[str]) -> None:
    """Say which files are read in another way than the usual one; those that are read alike in one line."""
    alike: dict[str, list[str]] = {}
    for note in notes:
        alike.setdefault(note.rpartition(": ")[2], []).append(note)
    for first, *more in alike.values():
        say(f"{first} (and {plural(len(more), 'more file')})" if more else first)


def recipe_of(
    choice: ModelChoice,
    methods: Sequence[str] | None,
    settings: Mapping[str, Any],
    condition: str | None,
    condition_field: str | None,
    chunking: Chunking | None,
    fitted: Fit,
) -> JobRecipe:
    """How the texts of a job become vectors."""
    from ..jobs.recipe import JobRecipe

    return JobRecipe(
        choice, tuple(methods or ()), settings, condition, condition_field, chunking, fitted.steps, fitted.texts
    )


class JobBar:
    """Draw the progress of a job; end it where too many rows have no vector."""

    def __init__(self, folder: Path, max_rejects: int | None, progress: bool | None) -> None:
        self.folder, self.max_rejects, self.progress = folder, max_rejects, progress
        self.rejected = self.before = self.cut = self.lost = self.unknown = 0
        self.bar: RowsBar | None = None

    def begin(self, rows: int, before: JobResult) -> None:
        """Draw the bar; shards of earlier runs are not counted in its rate."""
        self.before, self.rejected = before.rows, before.rejected
        if self.before:
            say(f"{plural(self.before, 'row')} done before")
        self._check_rejects()
        self.bar = RowsBar(rows, self.progress).__enter__()
        if self.before:
            self.bar.skip(self.before, self.before)
        self.bar.begin(rows, rows)

    def more(self, rows: float) -> None:
        """Rows were embedded."""
        assert self.bar is not None
        self.bar.more(rows)

    def done(self, number: int, counts: Mapping[str, int]) -> None:
        """A shard is done."""
        self.rejected += counts["rejected"]
        self.cut += counts["cut"]
        self.lost += counts["lost"]
        self.unknown += counts["unknown"]
        self._check_rejects()

    def _check_rejects(self) -> None:
        if self.max_rejects is not None and self.rejected > self.max_rejects:
            rows = f"{plural(self.rejected, 'row')} {'has' if self.rejected == 1 else 'have'} no vector"
            raise JobError(
                f"{rows}, and --max-rejects is {self.max_rejects:,}: the column {PROBLEM!r} of "
                f"{self.folder / 'shards'} gives the reasons; finished shards are kept"
            )

    def end(self) -> None:
        """Stop the bar, and say how many texts were cut, or are unknown."""
        if self.cut:
            say(f"warning: {plural(self.cut, 'text')} truncated, {self.lost:,} tokens dropped: --chunk keeps them")
        if self.unknown:
            say(f"warning: {TextsUnknown(self.unknown)}")
        if self.bar is not None:
            self.bar.__exit__(None, None, None)


def embed_to_folder(
    folder: Path,
    inputs: Inputs,
    recipe: JobRecipe,
    model: str,
    window: int,
    settings: Mapping[str, Any],
    options: JobOptions,
    *,
    columns: Mapping[str, Any],
    overwrite: bool,
    progress: bool | None,
    command: Mapping[str, Any],
) -> int:
    """Begin a job or go on with it; returns the exit code: 1 if a row was rejected."""
    from ..jobs.job import Job, count_ids, kept
    from ..jobs.rows import SHARD_ROWS
    from ..jobs.run import run_job
    from ..jobs.shard import ShardWorker

    own = {name: kind for name, kind in columns.items() if name != "text" or not options.no_text}
    notes: list[str] = []
    kinds = {**own, **inputs.kinds(notes.append)}
    say_forms(notes)
    if options.dry_run:
        return tell_estimate(inputs, recipe)
    settings = settings_of(model, settings, inputs.field, inputs.kind, inputs.form)
    settings |= {"--id": options.id, "--no-text": options.no_text}
    worker = ShardWorker(folder, inputs, recipe, kinds, model, window, options.id)
    if options.sample:
        return compare_again(worker, options.sample)
    began = time.perf_counter()
    job = Job.create(worker, settings, options.shard_rows or SHARD_ROWS, overwrite=overwrite, command=command)
    bar = JobBar(folder, options.max_rejects, progress)
    with interruptible(lambda: kept(job)):
        try:
            result = run_job(job, worker, options.run(), bar)
        finally:
            bar.end()
    for file in resized(job):
        say(f"warning: {file} has another size than when the job was begun: rows that were added are not in {folder}")
    say(summary(folder, result, bar.before, time.perf_counter() - began))
    if job.id is not None and result.complete and (told := str(count_ids(job))):
        say(f"warning: {told}: --id {options.id} does not name each row")
    return REJECTED if result.rejected or not result.complete else 0


def settings_of(
    model: str, given: Mapping[str, Any], field: str | None, kind: str | None, form: FileForm
) -> dict[str, Any]:
    """What the rows of a job depend on, by the names of the options, with how its input is read."""
    return {
        "--model": model, **given, "--column": field, "--format": kind, "--delimiter": form.delimiter,
        "--encoding": form.encoding, "--no-header": None if form.header else True,
    }  # fmt: skip


def compare_again(worker: ShardWorker, count: int) -> int:
    """Embed some shards of a job again, and print which differ; returns the exit code."""
    from ..jobs.job import Job
    from ..jobs.shard import TOLERANCE, verify

    numbers, differing = verify(Job.open(worker.folder), worker, count)
    for number in differing:
        print(f"shard {number:06} differs: remove its file, and the job's command embeds it again")
    equal = len(numbers) - len(differing)
    print(f"{plural(len(numbers), 'shard')} embedded again: {equal} equal within {TOLERANCE:g}")
    return REJECTED if differing else 0


def resized(job: Job) -> list[str]:
    """The files of a job's input that have a different size than when it was begun."""
    files = [(Path(file["file"]), file["size"]) for file in job.begun["inputs"]]
    return [str(path) for path, size in files if not path.is_file() or path.stat().st_size != size]


def summary(folder: Path, result: JobResult, before: int, seconds: float) -> str:
    """The last line of a run."""
    new = result.rows - before
    line = f"{plural(result.rows, 'row')} in {folder}"
    if new:
        line += f", {new:,} of them in {seconds:.1f} s ({new / seconds:.0f} rows/s)"
    if result.rejected:
        line += f"; {result.rejected:,} rejected, listed in {folder / 'rejects.jsonl'}"
    return line


def tell_estimate(inputs: Inputs, recipe: JobRecipe) -> int:
    """Print what a job would take."""
    from ..jobs.recipe import estimate

    found = estimate(inputs, recipe)
    print(f"rows    {found.rows:,}" + (f", {found.rejected:,} of them without a text" if found.rejected else ""))
    print(f"tokens  about {found.tokens:,}")
    print(f"time    about {clock_time(found.seconds)} in one process, by a sample of {plural(found.sample, 'text')}")
    print(f"size    about {found.size / 1e6:,.1f} MB")
    return 0
