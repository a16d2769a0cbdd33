"""A job: files of texts become a folder of shards, by as many processes as there are, and nothing is lost.

::

    FOLDER/job.json             what the job was begun with
    FOLDER/plan.jsonl           the shards: which rows of which file, with a hash of them
    FOLDER/made_by.json         the encoder, written by the first process that loads it
    FOLDER/shards/000000.parquet    row, id, kept columns, text and vectors of a shard's rows
    FOLDER/rejects/000000.jsonl     its rows without a vector, if there are any
    FOLDER/done/000000.json         says that the two are whole, with their checksums
    FOLDER/tmp/, FOLDER/lock        work of this moment; held by the process that hands out the shards
    FOLDER/complete.json            all shards are done
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ..errors import JobError, MissingExtra, plural
from ..files.atomic import moved_when_written
from ..files.stamps import model_stamps, stamps
from .contract import Contract, check_same, plain, read_sealed, sealed
from .job_folder import COMPLETE, clear, is_untouched, locked
from .names import JOB
from .parts_folder import checksum
from .plan import Shard, cut, first_other, plan_key, read_plan, write_plan
from .pool import Run, ShardListener, run_here
from .shard import (
    DONE,
    FOLDERS,
    MADE_BY,
    PLAN,
    TMP,
    ShardWorker,
    as_job_error,
    listing,
    marker,
    part,
    publish,
    read_marker,
)
from .vectors_info import VectorsInfo, read_info

FORMAT = 1
ANEW = "--overwrite starts it anew"
APART = ("files", "model files", "plan", "command")  # what job.json has beside the settings, which are compared

WRITERS = {"embed": "`afterword embed`", "embed_files": "`embed_files` in Python"}
"""Who begins jobs, by the setting "verb"; their settings have other names."""


class JobListener(ShardListener, Protocol):
    """Told of what a run does."""

    def begin(self, shards: Sequence[Shard], done: Mapping[int, Contract]) -> None:
        """Called once, with the whole plan and the markers of shards that earlier runs have finished."""


class Silent:
    """A listener that does nothing."""

    def begin(self, shards: Sequence[Shard], done: Mapping[int, Contract]) -> None:
        """Nothing."""

    def done(self, number: int, marker: Contract) -> None:
        """Nothing."""


@dataclass(frozen=True)
class JobResult:
    """What is done of a job.

    Attributes:
        rows: the rows of all finished shards, ``rejected`` those without a vector.
        unknown: how many of their texts are mostly unknown to the model.
        shards: how many shards are finished.
        complete: whether all shards are finished.
    """

    rows: int
    rejected: int
    shards: int
    complete: bool
    unknown: int


class Job:
    """A folder of shards. `Job.open` reads one that is there; `Job.create` begins one, or goes on with it.

    Args:
        folder: the folder.
        begun: what the job was begun with.
        plan: its shards.
    """

    def __init__(self, folder: Path, begun: Contract, plan: list[Shard]) -> None:
        self.folder, self.begun, self.plan = folder, begun, plan

    @classmethod
    def open(cls, folder: str | Path) -> Job:
        """A job that was begun, to be read.

        Raises:
            JobError: the folder holds no job, or its format is unknown.
        """
        folder = Path(folder)
        begun = read_sealed(folder / JOB)
        if begun is None:
            found = (folder / JOB).exists()
            fix = f"`embed -o {folder}/` begins one" if not found and is_untouched(folder) else ANEW
            raise JobError(f"{folder} is no folder of a job: {JOB} is {'damaged' if found else 'missing'}; {fix}")
        if begun["format"] != FORMAT:
            raise JobError(f"{folder} has format {begun['format']}, and this version reads {FORMAT}: upgrade")
        plan = read_plan(folder / PLAN, begun["plan"])
        return cls(folder, begun, plan)

    @classmethod
    def create(
        cls,
        worker: ShardWorker,
        settings: Mapping[str, Any],
        shard_rows: int,
        *,
        overwrite: bool = False,
        command: Mapping[str, Any] | None = None,
    ) -> Job:
        """Begin a job, or go on with the same one.

        Args:
            worker: what embeds its shards.
            settings: what its vectors depend on, by the names of the command's options; another one is refused.
            shard_rows: the most rows of a shard.
            overwrite: a job that was begun in another way is removed.
            command: what began the job, for `job verify`; it is not compared.

        Raises:
            JobError: the folder holds another job, or the input has changed; the first difference is named.
            DataError: another process writes the job; the folder was not made by Afterword; a file cannot be read.
        """
        folder, inputs = worker.folder, worker.inputs
        files = [str(file) for file in inputs.files]
        now = {"format": FORMAT, "--input": files, "--shard-rows": shard_rows, **plain(settings)}
        with locked(folder):
            try:
                job = _begun(folder)
                if job is not None:
                    job._check(worker, now, shard_rows, overwrite)
                    return job
            except JobError:
                if not overwrite and not is_untouched(folder):
                    raise
            clear(folder)  # of an interrupted beginning, or of one by which nothing was embedded
            return cls._begin(worker, now, shard_rows, plain(command or {}))

    def _check(self, worker: ShardWorker, now: Contract, shard_rows: int, overwrite: bool) -> None:
        """Raise a JobError if the command, the input or the model is another one.

        The model of an unfinished job is compared by its first worker, but for one that may be removed.
        """
        before = {name: value for name, value in self.begun.items() if name not in APART}
        if not self.complete:  # the first worker compares the weights, which may be somewhere else now
            before["--model"] = now.get("--model")
        if before.get("verb") != now.get("verb") and {before.get("verb"), now.get("verb")} <= WRITERS.keys():
            writer = WRITERS[before["verb"]]
            raise JobError(f"{self.folder} was begun by {writer}: go on with that, or start anew by overwrite")
        with as_job_error():
            check_same(self.folder, before, now)
        stamped = stamps_of(worker)
        if self.begun["files"] != stamped["files"]:
            other = first_other(worker.inputs, self.plan, shard_rows)
            if other is not None:
                raise JobError(other)
        moved = stamped["model files"] not in ([], self.begun["model files"])  # a gone model is no other
        if (self.complete and moved) or (overwrite and not self.complete and (self.folder / MADE_BY).exists()):
            worker.start()
        if any(self.begun[name] != stamp for name, stamp in stamped.items()):  # only times or places are others
            self.begun.update(stamped)
            with moved_when_written(self.folder / TMP / JOB, self.folder / JOB) as file:
                file.write(json.dumps(sealed(self.begun), indent=1).encode())

    @classmethod
    def _begin(cls, worker: ShardWorker, now: Contract, shard_rows: int, command: Contract) -> Job:
        stamped = stamps_of(worker)
        plan = [shard for shard, _ in cut(worker.inputs, shard_rows)]
        if not plan:
            raise JobError(f"{worker.inputs.files[0]} holds no row")
        for name in FOLDERS:
            (worker.folder / name).mkdir(exist_ok=True)
        tmp, written = worker.folder / TMP, write_plan(plan)
        publish(worker.folder / PLAN, tmp, written)
        begun = {**now, **stamped, "plan": plan_key(written), "command": command}
        publish(worker.folder / JOB, tmp, json.dumps(sealed(begun), indent=1).encode())
        return cls(worker.folder, begun, plan)

    def run(self, worker: ShardWorker, run: Run = run_here, listener: JobListener | None = None) -> JobResult:
        """Embed the shards that are not done.

        Args:
            worker: what embeds them.
            run: embeds shards: in this process, in several, or on Ray.
            listener: told of each shard.

        Raises:
            JobError: the encoder or the input is another one.
            DataError: another process writes the job.
        """
        told = listener or Silent()
        with locked(self.folder):
            for left in (self.folder / TMP).iterdir():
                left.unlink(missing_ok=True)
            whole = self.done().keys() - self.damaged()
            for shard in self.plan:
                if shard.number not in whole:  # what is there may be damaged, and a name is taken once
                    self.remove(shard.number)
            done = self.done()
            told.begin(self.plan, done)
            try:
                run(worker, [s.number for s in self.plan if s.number not in done], told)
            finally:
                for left in (self.folder / TMP).iterdir():
                    left.unlink(missing_ok=True)
            result = self.result()
            if result.complete:
                self._complete(result)
            return result

    def _complete(self, result: JobResult) -> None:
        (self.folder / COMPLETE).unlink(missing_ok=True)
        sums = hashlib.blake2b(digest_size=16)
        for number, found in sorted(self.done().items()):
            sums.update(f"{number} {found['part']} {found['listing']}\n".encode())
        totals = {"rows": result.rows, "rejected": result.rejected, "checksum": sums.hexdigest()}
        publish(self.folder / COMPLETE, self.folder / TMP, json.dumps(totals, indent=1).encode())

    def done(self) -> dict[int, Contract]:
        """What the markers of finished shards say, by their numbers."""
        found = {s: read_marker(marker(self.folder, s.number)) for s in self.plan}
        return {s.number: said for s, said in found.items() if said is not None and said["rows"] == s.rows}

    def damaged(self) -> list[int]:
        """The numbers of shards whose marker or files are not as they were when they were finished."""
        return [s.number for s in self.plan if marker(self.folder, s.number).exists() and not self._is_whole(s)]

    def _is_whole(self, shard: Shard) -> bool:
        said = read_marker(marker(self.folder, shard.number))
        if said is None or said["rows"] != shard.rows:
            return False
        listed = checksum(listing(self.folder, shard.number)) if said["rejected"] else None
        return (checksum(part(self.folder, shard.number)), listed) == (said["part"], said["listing"])

    def check_whole(self) -> None:
        """Raise a JobError if a file is not as its marker says."""
        if damaged := self.damaged():
            raise JobError(f"{part(self.folder, damaged[0])} is damaged: the job's command embeds it again")

    def remove(self, number: int) -> None:
        """Remove a shard, so that it is embedded again; its marker last: what is half removed is then removed again."""
        (self.folder / COMPLETE).unlink(missing_ok=True)
        for path in (part(self.folder, number), listing(self.folder, number), marker(self.folder, number)):
            path.unlink(missing_ok=True)

    def result(self) -> JobResult:
        """What is done."""
        done = self.done().values()
        rows, rejected, unknown = (sum(said.get(name, 0) for said in done) for name in ("rows", "rejected", "unknown"))
        return JobResult(rows, rejected, len(done), len(done) == len(self.plan), unknown)

    @property
    def complete(self) -> bool:
        """Whether all shards are done."""
        return self.result().complete

    @property
    def rows(self) -> int:
        """The number of rows of the input."""
        return sum(shard.rows for shard in self.plan)

    @property
    def id(self) -> str | None:
        """The column of the input that holds ids, which the shards have as "id"; None if it has none."""
        found: str | None = self.begun.get("--id", self.begun.get("id"))
        return found

    def parts(self) -> list[Path]:
        """The .parquet files of the finished shards, in the order of the input."""
        return [part(self.folder, number) for number in sorted(self.done())]

    @property
    def infos(self) -> dict[str, VectorsInfo]:
        """What each column of vectors was made by.

        Raises:
            JobError: no shard is finished.
        """
        parts = self.parts()
        if not parts:
            raise JobError(f"{self.folder} has no finished shard yet: run its command")
        return read_info(parts[0])

    def read(self, columns: Sequence[str] | None = None) -> Any:
        """A `pyarrow.RecordBatchReader` over the finished shards, in the order of the input.

        Args:
            columns: the columns to read; None = all. A row without a vector has null there.

        Raises:
            JobError: no shard is finished, or a column is not there or named twice.
            MissingExtra: pyarrow is not installed.
        """
        try:
            import pyarrow as pa
            import pyarrow.parquet as pq
        except ImportError:
            raise MissingExtra("pyarrow", "parquet") from None
        done = self.done()
        parts = {part(self.folder, shard.number): shard for shard in self.plan if shard.number in done}
        if not parts:
            raise JobError(f"{self.folder} has no finished shard yet: run its command")
        first = next(iter(parts))
        schema = pq.read_schema(first)
        if columns is not None:
            if isinstance(columns, str):
                raise JobError(f"columns={columns!r}: give a list of names")
            wrong = [name for name in columns if name not in schema.names or list(columns).count(name) > 1]
            if wrong:
                raise JobError(f"column {wrong[0]!r}: name each once, of {', '.join(schema.names)}")
            schema = pa.schema([schema.field(name) for name in columns], schema.metadata)

        def batches() -> Iterator[Any]:
            for path, shard in parts.items():
                if not self._is_whole(shard):
                    raise JobError(f"{path} is damaged: the job's command embeds it again")
                with pq.ParquetFile(path, pre_buffer=False) as file:
                    yield from file.iter_batches(columns=None if columns is None else list(columns))

        return pa.RecordBatchReader.from_batches(schema, (b.cast(schema) for b in batches()))

    def rejects(self) -> Iterator[dict[str, Any]]:
        """The rows without a vector: each its number, its line in its file, and the reason."""
        for number in sorted(self.done()):
            with suppress(FileNotFoundError), listing(self.folder, number).open("rb") as file:
                yield from map(json.loads, file)


def stamps_of(worker: ShardWorker) -> Contract:
    """Stamps of the files of the input, and of the model with its methods, by their names in job.json."""
    made_by = [*model_stamps(worker.model), *stamps(worker.recipe.files)]
    return {"files": stamps(worker.inputs.files), "model files": made_by}


def _begun(folder: Path) -> Job | None:
    """The job of a folder; None if none was begun, or if it was interrupted before its plan was whole."""
    if not (folder / JOB).exists() and not any((folder / DONE).glob("*.json")):
        return None
    return Job.open(folder)


def kept(job: Job) -> str:
    """What is kept if a run ends now, and how it goes on."""
    rows = sum(said["rows"] for said in job.done().values())
    if not rows:
        return f"no shard was finished; the same command goes on with {job.folder}"
    return f"{plural(rows, 'row')} kept in {job.folder}; the same command goes on from there"
