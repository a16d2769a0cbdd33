"""Embed files of texts into a folder of shards, by one call."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from ..errors import JobError, warn
from ..methods.serialize import parse_method
from .ids import count_ids
from .job import Job, JobListener
from .names import PROBLEM, ROW, VECTOR
from .plan import SHARD_ROWS, Inputs, files_of
from .pool import run_by
from .recipe import JobRecipe, Load
from .shard import ShardWorker
from .windows import WINDOW

VERB = "embed_files"

OPTIONS = ("prompt", "prompt_name", "normalize_embeddings", "truncate_dim", "batch_tokens", "on_long")
"""Arguments of `Encoder.encode` that the texts of a job may have."""

TAKEN = (ROW, PROBLEM, "id", "text", VECTOR)
"""Columns of a shard, whose names no kept column may have."""


def embed_files(
    folder: str | Path,
    files: Sequence[str | Path] | str | Path,
    model: str | Path,
    method: str | None = None,
    *,
    field: str | None = None,
    id: str | None = None,
    keep: Sequence[str] = (),
    with_text: bool = True,
    load: Mapping[str, Any] | None = None,
    workers: int | Literal["auto"] | None = None,
    ray: str | None = None,
    threads: int | None = None,
    shard_rows: int = SHARD_ROWS,
    overwrite: bool = False,
    listener: JobListener | None = None,
    **options: Any,
) -> Job:
    """Embed files of texts into a folder of shards; after any interruption, the same call goes on.

    It does what ``afterword embed -o FOLDER/`` does; docs/jobs.md tells what is promised. A folder that the command has
    begun is gone on with by the command, and one that a call has begun by the call.

    Args:
        folder: of the job.
        files: .txt, .jsonl, .csv, .tsv or .parquet files or folders of them; all but .parquet may be gzipped.
        model: as `Encoder.load` takes it.
        method: as ``--method`` spells it; None = the model's own.
        field: the column or field that holds the texts; None = as ``afterword embed`` finds it.
        id: the column whose values name rows.
        keep: columns that are written beside the vectors.
        with_text: whether the texts are written too.
        load: more arguments of `Encoder.load`.
        workers, ray, threads: as `pool.run_by` takes them.
        shard_rows: the most rows of a shard, which is the most that is embedded again after a kill.
        overwrite: a job that was begun in another way is removed.
        listener: told of each shard.
        options: those of `Encoder.encode` that `OPTIONS` names.

    Returns:
        The job: `Job.complete` says whether all shards are done, `Job.rejects` gives the rows without a vector, and
        `Job.read` rows and vectors.

    Raises:
        JobError: the folder holds another job, the input has changed, or an option is none of a job.
        InputError: a number is too small.
        UserWarning: rows have no id, or the id of an earlier row.
        MethodError: there is no such method.
        DataError: a file cannot be read, or another process writes the folder.
        ModelError: the model cannot be loaded.
    """
    if not isinstance(model, str | Path):
        raise JobError(f"model={model!r}: give the name or the folder of a model, which each process loads")
    wrong = sorted(options.keys() - set(OPTIONS))
    if wrong:
        raise JobError(f"{wrong[0]!r} is no option of a job's texts: there are {', '.join(OPTIONS)}")
    if not isinstance(shard_rows, int) or shard_rows < 1:
        raise JobError(f"shard_rows={shard_rows}: give 1 or more")
    if method is not None:
        parse_method(method)  # before a folder is begun with it
    taken = next((name for name in keep if name in TAKEN and name != id), None)
    if taken is not None:
        raise JobError(f"a job has a column {taken!r} of its own: rename that of the input")
    gpus = float(str((load or {}).get("device", "")).startswith("cuda"))
    run = run_by(workers, ray, threads, gpus)
    paths = [Path(path) for path in ([files] if isinstance(files, str | Path) else files)]
    if not paths:
        raise JobError("no file is given: give one or more")
    settings = {"verb": VERB, "--model": str(model), "--method": [] if method is None else [method], "field": field,
                "id": id, "keep": list(keep), "with_text": with_text, "load": dict(load or {}),
                "options": options}  # fmt: skip
    worker = _worker(Path(folder), files_of(paths), settings)
    with _advised():
        job = Job.create(worker, settings, shard_rows, overwrite=overwrite)
        result = job.run(worker, run, listener)
    if id is not None and result.complete and (told := str(count_ids(job))):
        warn(f"{told}: id={id!r} does not name each row")
    return job


@contextmanager
def _advised() -> Iterator[None]:
    """Advise a call where a command would be advised."""
    try:
        yield
    except JobError as e:
        said = str(e).replace("--overwrite", "overwrite=True").replace("give the same command", "give the same call")
        raise JobError(said) from None


def worker_of(job: Job) -> ShardWorker:
    """What embeds the shards of a job that `embed_files` has begun.

    Raises:
        JobError: something else has begun it.
        MissingDataset: its input is gone.
    """
    settings = job.begun["settings"]
    if settings.get("verb") != VERB:
        raise JobError(f"{job.folder} was not begun by embed_files: go on with what has begun it")
    return _worker(job.folder, files_of([Path(path) for path in settings["--input"]]), settings)


def _worker(folder: Path, files: tuple[Path, ...], settings: Mapping[str, Any]) -> ShardWorker:
    id, keep = settings["id"], settings["keep"]
    named = [] if id is None or id in keep else [id]
    inputs = Inputs(files, field=settings["field"], keep=(*named, *keep))
    recipe = JobRecipe(Load(settings["--model"], settings["load"]), tuple(settings["--method"]), settings["options"])
    columns = {**({"text": "text"} if settings["with_text"] else {}), **inputs.kinds()}
    return ShardWorker(folder, inputs, recipe, columns, settings["--model"], WINDOW, id)
