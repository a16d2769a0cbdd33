"""Run a job: in this process, in several, or on Ray."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal, Protocol

import torch

from ..encode.processes import ProcessPool, cores
from ..errors import InputError, JobError, ModelError, warn
from ..files.atomic import atomic_file
from ..methods.serialize import parse_method
from . import PROBLEM, ROW, VECTOR
from .job import (
    REJECTS,
    SHARDS,
    TEMPORARY,
    Job,
    JobListener,
    JobResult,
    ShardListener,
    Silent,
    count_ids,
    locked,
    parts_in,
)
from .on_ray import run_on_ray
from .recipe import JobRecipe, Load
from .rows import SHARD_ROWS, WINDOW, Inputs, files_of
from .shard import ShardWorker

SECONDS = 0.5  # between two reports of progress


Do = Callable[[int], dict[str, Any]]
"""Embeds the shard of a number and returns what it counted; the same shard each time."""


class Worker(Protocol):
    """What a process needs to embed shards; it is pickled once for each process."""

    def start(self, report: Callable[[float], None]) -> Do:
        """Load the model; ``report`` is called with numbers of rows while they are embedded."""


Run = Callable[[Worker, Sequence[int], ShardListener], None]
"""Embeds the shards of these numbers."""


def run_by(
    workers: int | Literal["auto"] | None = None, ray: str | None = None, threads: int | None = None, gpus: float = 0
) -> Run:
    """Choose what embeds the shards.

    Args:
        workers: number of processes, or "auto" for one process per two cores; None = this process alone.
        ray: address of a Ray cluster, or "auto"; "local" starts one on this machine; None = no Ray.
        threads: of each process.
        gpus: of each process on Ray.

    Raises:
        InputError: ``workers`` or ``threads`` is not a number of at least 1.
    """
    for name, number in (("workers", workers), ("threads", threads)):
        if number is not None and (name, number) != ("workers", "auto") and (type(number) is not int or number < 1):
            raise InputError(f"{name}={number!r}: give 1 or more")
    count = max(1, cores() // 2) if workers == "auto" else workers

    def run(worker: Worker, numbers: Sequence[int], listener: ShardListener) -> None:
        if not numbers:
            return
        if ray is not None:
            address = None if ray == "local" else ray
            run_on_ray(worker, numbers, listener, address, None if workers == "auto" else count, threads or 1, gpus)
        elif count is None:
            run_here(worker, numbers, listener, threads)
        else:
            run_local(worker, numbers, listener, count, threads)

    return run


def run_job(job: Job, worker: ShardWorker, run: Run | None = None, listener: JobListener | None = None) -> JobResult:
    """Embed the shards of a job that are not done.

    Args:
        job: the job.
        worker: what embeds them.
        run: where: in this process (None), in several, or on Ray; see `run_by`.
        listener: progress callbacks.

    Raises:
        JobError: the encoder differs from that of the finished shards, or the input has changed.
        DataError: another process writes the job.
    """
    heard = listener or Silent()
    with locked(job.folder):
        for path in (*job.folder.glob(TEMPORARY), *(job.folder / SHARDS).glob(TEMPORARY)):
            path.unlink()
        heard.begin(job.rows, job.result())
        done = parts_in(job.folder)
        (run or run_here)(worker, [shard.number for shard in job.plan if shard.number not in done], heard)
        result = job.result()
        if result.rejected and worker.row is not None:
            with atomic_file(job.folder / REJECTS) as file:
                file.writelines(json.dumps(row).encode() + b"\n" for row in job.rejects())
        return result


def run_here(worker: Worker, numbers: Sequence[int], listener: ShardListener, threads: int | None = None) -> None:
    """Embed shards in this process, one after the other."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    try:
        do = worker.start(listener.more)
        for number in numbers:
            listener.done(number, do(number))
    finally:
        torch.set_num_threads(before)


def run_local(
    worker: Worker, numbers: Sequence[int], listener: ShardListener, workers: int, threads: int | None = None
) -> None:
    """Embed shards in several processes, which have ended when this returns or raises.

    Args:
        worker: loads the model in each process.
        numbers: of the shards.
        listener: called for each finished shard.
        workers: number of processes.
        threads: of each process; None = its share of the cores.

    Raises:
        AfterwordError, OSError: of the input, the model or the disk, as the first process raised it.
        ModelError: a process ended by itself.
    """
    embedded, seen = get_context("spawn").Value("d"), 0.0  # rows, counted by all processes
    pool = ProcessPool(_load, (worker, embedded), [threads or max(1, cores() // workers)] * min(workers, len(numbers)))
    try:
        running = {pool.submit(_do, number): number for number in numbers}
        while running:
            ended, _ = wait(running, SECONDS, FIRST_COMPLETED)
            now = embedded.get_obj().value  # without its lock, which a killed process may hold
            listener.more(now - seen)
            seen = now
            for future in ended:
                listener.done(running.pop(future), future.result())
    except BrokenProcessPool:
        raise ModelError(
            "a worker process ended by itself: if memory ran out, use fewer workers or a lower batch_tokens; a script "
            'that starts workers needs if __name__ == "__main__":; finished shards are kept'
        ) from None
    finally:
        pool.close()


def _load(worker: Worker, embedded: Any, threads: int) -> Do:
    torch.set_num_threads(threads)
    logging.disable(logging.WARNING)  # each process would repeat what loading says

    def report(rows: float) -> None:
        with embedded.get_lock():
            embedded.value += rows

    return worker.start(report)


def _do(do: Do, number: int) -> dict[str, Any]:
    return do(number)


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
        result = run_job(job, worker, run, listener)
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
