"""A job: files of texts become a folder of shards, in one process or several, and nothing finished is lost.

::

    FOLDER/job.json                 the command, its settings, sizes and hashes of the inputs, the plan of the shards
    FOLDER/shards/000000.parquet    row, id, kept columns, text, vectors, and the problem of a row without a vector
    FOLDER/rejects.jsonl            the rows without a vector, listed at the end of a run
    FOLDER/lock                     held by the process that writes

A shard is done if and only if its file exists. Shards and batches follow from the input alone: a job that was killed
goes on, and has the bytes of an unbroken run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from filelock import FileLock, Timeout

from ..errors import DataError, JobError, plural
from ..files.atomic import atomic_file
from .made_by import check_same, plain
from .names import JOB, PROBLEM, ROW
from .plan import Shard, cut, hashes, shards_of
from .pool import Run, ShardListener, run_here
from .shard import SHARDS, Counts, ShardWorker, counts_of, part, parts_in
from .vectors_info import VectorsInfo, read_info

FORMAT = 1
LOCK, REJECTS = "lock", "rejects.jsonl"
INPUT, JOINED = "input", "joined"  # files of the hidden job of an output file; see `file_job`
TEMPORARY = ".afterword-*.tmp"  # what a run that was killed has left


class JobListener(ShardListener, Protocol):
    """Progress callbacks of a run."""

    def begin(self, rows: int, before: JobResult) -> None:
        """Called once, with the number of rows of the job, and with what earlier runs have finished."""


class Silent:
    """Callbacks that do nothing."""

    def begin(self, rows: int, before: JobResult) -> None:
        """Nothing."""

    def more(self, rows: float) -> None:
        """Nothing."""

    def done(self, number: int, counts: Counts) -> None:
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
    """A folder of shards. `Job.open` reads one; `Job.create` begins one, or goes on with it.

    Args:
        folder: the folder.
        begun: what job.json holds.
    """

    def __init__(self, folder: Path, begun: dict[str, Any]) -> None:
        self.folder, self.begun, self.plan = folder, begun, shards_of(begun["plan"])

    @classmethod
    def open(cls, folder: str | Path) -> Job:
        """Open a job to read it.

        Raises:
            JobError: the folder does not hold a job, or job.json cannot be read.
        """
        folder = Path(folder)
        try:
            begun = json.loads((folder / JOB).read_bytes())
            if begun["format"] != FORMAT:
                raise JobError(f"{folder} has format {begun['format']}, and this version reads {FORMAT}")
            return cls(folder, begun)
        except FileNotFoundError:
            raise JobError(f"{folder} is not a job: {JOB} is missing; `embed -o {folder}/` begins one") from None
        except (OSError, ValueError, KeyError, TypeError) as e:
            raise JobError(f"{folder / JOB} cannot be read ({e}): --overwrite starts again") from None

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
            settings: what its vectors depend on, by the names of the command's options; a different one is refused.
            shard_rows: the most rows of a shard.
            overwrite: a job that was begun in a different way is removed.
            command: what began the job, for `job verify`; it is not compared.

        Raises:
            JobError: the folder holds a different job, or the input has changed; the first difference is named.
            DataError: another process writes the job; the folder holds something else; a file cannot be read.
        """
        folder, inputs = worker.folder, worker.inputs
        names = ["-"] if inputs.spooled else [str(file) for file in inputs.files]
        now = plain({**settings, "--input": names, "--shard-rows": shard_rows})
        if (folder / JOB).exists():
            with locked(folder):
                try:
                    job = cls.open(folder)
                    job._check(worker, now, overwrite)
                    return job
                except JobError:
                    if not overwrite and parts_in(folder):
                        raise
                for path in (*parts_in(folder).values(), folder / REJECTS, folder / JOB):
                    path.unlink(missing_ok=True)
        elif folder.exists() and (not folder.is_dir() or _foreign(folder)):
            raise DataError(f"{folder} was not made by Afterword: give the name of a new folder")
        files, plan = hashes(inputs.files), cut(inputs, shard_rows)
        (folder / SHARDS).mkdir(parents=True, exist_ok=True)
        begun = plain({"format": FORMAT, "settings": now, "inputs": files, "command": command or {}, "plan": plan})
        with locked(folder), atomic_file(folder / JOB) as file:
            file.write(json.dumps(begun).encode())
        return cls(folder, begun)

    def _check(self, worker: ShardWorker, now: dict[str, Any], overwrite: bool) -> None:
        """Raise a JobError if a setting, the input or, where no worker will compare it, the model differs."""
        try:
            check_same(self.folder, self.begun["settings"], now)
        except DataError as e:
            raise JobError(str(e)) from None
        for before, file in zip(self.begun["inputs"], hashes(worker.inputs.files), strict=True):
            if before != file:
                name = "the standard input" if worker.inputs.spooled else file["file"]
                raise JobError(
                    f"{name} has changed since {self.folder} was begun (from {before['size']:,} bytes to "
                    f"{file['size']:,}; the contents differ): restore it, or --overwrite to start again"
                )
        if self.complete or (overwrite and parts_in(self.folder)):
            worker.start()

    def run(self, worker: ShardWorker, run: Run = run_here, listener: JobListener | None = None) -> JobResult:
        """Embed the shards that are not done.

        Args:
            worker: what embeds them.
            run: where: in this process, in several, or on Ray; see `pool.run_by`.
            listener: progress callbacks.

        Raises:
            JobError: the encoder differs from that of the finished shards, or the input has changed.
            DataError: another process writes the job.
        """
        heard = listener or Silent()
        with locked(self.folder):
            for path in (*self.folder.glob(TEMPORARY), *(self.folder / SHARDS).glob(TEMPORARY)):
                path.unlink()
            heard.begin(self.rows, self.result())
            done = parts_in(self.folder)
            run(worker, [shard.number for shard in self.plan if shard.number not in done], heard)
            result = self.result()
            if result.rejected and worker.row is not None:
                with atomic_file(self.folder / REJECTS) as file:
                    file.writelines(json.dumps(row).encode() + b"\n" for row in self.rejects())
            return result

    def result(self) -> JobResult:
        """What is done."""
        parts = parts_in(self.folder)
        counts = [counts_of(path) for path in parts.values()]
        rejected, unknown = (sum(count[name] for count in counts) for name in ("rejected", "unknown"))
        rows = sum(shard.rows for shard in self.plan if shard.number in parts)
        return JobResult(rows, rejected, len(parts), len(parts) == len(self.plan), unknown)

    @property
    def complete(self) -> bool:
        """Whether all shards are done."""
        return len(parts_in(self.folder)) == len(self.plan)

    @property
    def rows(self) -> int:
        """The number of rows of the input."""
        return sum(shard.rows for shard in self.plan)

    @property
    def id(self) -> str | None:
        """The column of the input that holds ids, which the shards have as "id"; None if it has none."""
        settings = self.begun["settings"]
        found: str | None = settings.get("--id", settings.get("id"))
        return found

    def parts(self) -> list[Path]:
        """The .parquet files of the finished shards, in the order of the input."""
        return list(parts_in(self.folder).values())

    def missing(self) -> list[Shard]:
        """The shards that are not done."""
        return [shard for shard in self.plan if not part(self.folder, shard.number).exists()]

    @property
    def infos(self) -> dict[str, VectorsInfo]:
        """What each column of vectors was made by.

        Raises:
            JobError: no shard is finished.
        """
        return read_info(self._first())

    def _first(self) -> Path:
        parts = self.parts()
        if not parts:
            raise JobError(f"{self.folder} has no finished shard yet: run its command")
        return parts[0]

    def read(self, columns: Sequence[str] | None = None) -> Any:
        """A `pyarrow.RecordBatchReader` over the finished shards, in the order of the input.

        Args:
            columns: the columns to read; None = all. A row without a vector has null there.

        Raises:
            JobError: no shard is finished, or a column does not exist or is named twice.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        schema = pq.read_schema(self._first())
        if columns is not None:
            if isinstance(columns, str):
                raise JobError(f"columns={columns!r}: give a list of names")
            wrong = [name for name in columns if name not in schema.names or list(columns).count(name) > 1]
            if wrong:
                raise JobError(f"column {wrong[0]!r}: name each once, of {', '.join(schema.names)}")
            schema = pa.schema([schema.field(name) for name in columns], schema.metadata)

        def batches() -> Iterator[Any]:
            for path in self.parts():
                with pq.ParquetFile(path, pre_buffer=False) as file:
                    yield from file.iter_batches(columns=None if columns is None else list(columns))

        return pa.RecordBatchReader.from_batches(schema, (b.cast(schema) for b in batches()))

    def rejects(self) -> Iterator[dict[str, Any]]:
        """The rows without a vector: each its number, its line in its file, and the reason."""
        import pyarrow.parquet as pq

        for path in self.parts():
            if counts_of(path)["rejected"]:
                for row in pq.read_table(path, columns=[ROW, PROBLEM]).to_pylist():
                    if row[PROBLEM] is not None:
                        yield {"row": row[ROW], **row[PROBLEM]}


def _foreign(folder: Path) -> bool:
    """Whether a folder without job.json holds anything but what a job leaves before it writes that."""
    left = [path for path in folder.iterdir() if path not in folder.glob(TEMPORARY)]
    return bool(parts_in(folder)) or bool({path.name for path in left} - {LOCK, SHARDS, INPUT, JOINED})


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a job's folder; one thread may hold it more than once.

    Raises:
        DataError: another process holds it.
    """
    try:
        with FileLock(folder / LOCK, timeout=0, is_singleton=True):
            yield
    except Timeout:
        raise DataError(f"another process is writing {folder}: wait for it") from None


def kept(job: Job) -> str:
    """What is kept if a run ends now, and how it goes on."""
    rows = sum(job.plan[number].rows for number in parts_in(job.folder))
    if not rows:
        return f"no shard was finished; the same command goes on with {job.folder}"
    return f"{plural(rows, 'row')} kept in {job.folder}; the same command goes on from there"
