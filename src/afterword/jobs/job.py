"""A job: files of texts become a folder of shards, in one process or several, and nothing finished is lost."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from filelock import FileLock, Timeout

from ..errors import DataError, JobError, plural
from ..files.atomic import atomic_file
from . import JOB, PROBLEM, ROW
from .rows import SHARD_ROWS, Inputs, Item, windows
from .stored import PREFIX, UNKNOWN, VectorsInfo, read_info

if TYPE_CHECKING:
    from .shard import ShardWorker


@dataclass(frozen=True)
class Shard:
    """Some rows of one file.

    Attributes:
        number: of the shard, from 0.
        file: the number of its file among the inputs.
        first: its first row, counted in the file; ``row``: counted in all files.
        rows: how many rows it has.
    """

    number: int
    file: int
    first: int
    row: int
    rows: int


def cut(inputs: Inputs, rows: int = SHARD_ROWS) -> list[tuple[int, int]]:
    """Cut the input into shards of at most so many rows, and of fewer where texts are long.

    Returns:
        The number of the file and the number of rows of each shard; an empty input is one shard without rows.

    Raises:
        DataError: a file cannot be read.
    """
    files = range(len(inputs.files))
    return [(file, len(items)) for file in files for items in windows(inputs.items(file), rows)] or [(0, 0)]


def shards_of(plan: Sequence[Sequence[int]]) -> list[Shard]:
    """The shards of a plan, as `cut` returns it.

    >>> shards_of([(0, 2), (0, 1), (1, 2)])[2]
    Shard(number=2, file=1, first=0, row=3, rows=2)
    """
    shards: list[Shard] = []
    row = first = last = 0
    for number, (file, rows) in enumerate(plan):
        first = first if file == last else 0
        shards.append(Shard(number, file, first, row, rows))
        row, first, last = row + rows, first + rows, file
    return shards


class ShardRows:
    """Read the rows of shards; in ascending order each file is read once.

    A file is read from its start where a shard comes before the last one: so .gz files and any encoding can be read.

    Args:
        inputs: the files.
    """

    def __init__(self, inputs: Inputs) -> None:
        self.inputs = inputs
        self._at = (-1, 0)
        self._items: Iterator[Item] = iter(())

    def of(self, shard: Shard) -> list[Item]:
        """The rows of a shard.

        Raises:
            JobError: the file has become shorter.
        """
        file, at = self._at
        if file != shard.file or at > shard.first:
            self._items, at = self.inputs.items(shard.file), 0
        items = list(islice(self._items, shard.first - at, shard.first - at + shard.rows))
        self._at = shard.file, shard.first + shard.rows
        if len(items) < shard.rows:
            raise JobError(f"{self.inputs.files[shard.file]} has changed since the job was begun: it has fewer rows")
        return items


def hashes(files: Sequence[Path]) -> list[dict[str, Any]]:
    """The size in bytes and a hash of each file."""
    found = []
    for path in files:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
        found.append({"file": str(path), "size": path.stat().st_size, "hash": digest})
    return found


def plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values as a JSON file gives them back.

    >>> plain({"--method": ("echo",)})
    {'--method': ['echo']}
    """
    found: dict[str, Any] = json.loads(json.dumps(values, default=str))
    return found


def first_difference(before: Any, now: Any, name: str = "") -> tuple[str, Any, Any] | None:
    """The first value that differs: its name, what it was, and what it is; None if all are equal.

    >>> first_difference({"a": 1, "b": {"c": 2}}, {"a": 1, "b": {"c": 3}})
    ('b c', 2, 3)
    """
    if isinstance(before, dict) and isinstance(now, dict):
        for key in dict.fromkeys([*now, *before]):
            found = first_difference(before.get(key), now.get(key), f"{name} {key}".strip())
            if found is not None:
                return found
        return None
    return None if before == now else (name, before, now)


def check_same(folder: Path, before: dict[str, Any], now: dict[str, Any]) -> None:
    """Refuse to go on with parts that were made in another way.

    Raises:
        DataError: a value differs; the first one is named.
    """
    found = first_difference(before, now)
    if found is not None:
        name, old, new = found
        raise DataError(
            f"{folder} was begun with {name} {spelled(old)}, and now it is {spelled(new)}: give the same command, or "
            "--overwrite to start again"
        )


def spelled(value: Any) -> str:
    """A value of a command line in a message.

    >>> spelled(None), spelled("echo"), spelled(["id"])
    ('not given', 'echo', '["id"]')
    """
    return "not given" if value is None or value == [] else str(value) if isinstance(value, str) else json.dumps(value)


FORMAT = 1


LOCK, REJECTS = "lock", "rejects.jsonl"
INPUT, JOINED = "input", "joined"  # files of the hidden job of an output file


INPUT, JOINED = "input", "joined"  # files of the hidden job of an output file; see `file_job`


TEMPORARY = ".afterword-*.tmp"  # what a run that was killed has left


class ShardListener(Protocol):
    """Progress callbacks, called in the caller's own thread."""

    def more(self, rows: float) -> None:
        """Called with the number of rows that were embedded since the last call."""

    def done(self, number: int, counts: dict[str, Any]) -> None:
        """Called when a shard is finished."""


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


SHARDS = "shards"


REJECTED = f"{PREFIX}rejected"


NAME = re.compile(r"[0-9]{6,}\.parquet")


Counts = dict[str, int]
"""Of a shard: its rows, those rejected, its cut texts and the tokens they lost, its texts mostly unknown."""


def part(folder: Path, number: int) -> Path:
    """The file of a shard; the shard is done if and only if it exists."""
    return folder / SHARDS / f"{number:06}.parquet"


def parts_in(folder: Path) -> dict[int, Path]:
    """The files of the finished shards of a job, by their numbers in ascending order."""
    found = [path for path in (folder / SHARDS).glob("*.parquet") if NAME.fullmatch(path.name)]
    return {int(path.stem): path for path in sorted(found, key=lambda path: int(path.stem))}


def counts_of(path: Path) -> Counts:
    """The numbers of rejected and of mostly unknown texts of a finished shard."""
    import pyarrow.parquet as pq

    notes = pq.read_schema(path).metadata or {}
    return {"rejected": int(notes.get(REJECTED.encode(), 0)), "unknown": int(notes.get(UNKNOWN.encode(), 0))}


ID = "id"  # the column of a shard


class IdCounts(NamedTuple):
    """Rows with a vector whose ids do not name them: those without an id, and those with the id of an earlier row."""

    missing: int
    repeated: int

    def __str__(self) -> str:
        """In words; "" if each id names its row.

        >>> str(IdCounts(1, 2)), str(IdCounts(0, 1))
        ('1 row has no id, 2 rows have the id of an earlier row', '1 row has the id of an earlier row')
        """
        told = ((self.missing, "no id"), (self.repeated, "the id of an earlier row"))
        return ", ".join(f"{plural(n, 'row')} {'has' if n == 1 else 'have'} {what}" for n, what in told if n)


def count_ids(job: Job) -> IdCounts:
    """Count the ids of a job that name no row, or several; 8 bytes a row are held, and thrice that at the end.

    Rejected rows do not count, and the chunks of a row count once. Ids are compared by 64 bits of their hashes: among
    a million that differ, two are taken as equal with a probability of 3e-8.

    Args:
        job: with ids, all of whose shards are done.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    missing, hashes = 0, [np.empty(0, np.int64)]
    for part in job.parts():
        table = pq.read_table(part, columns=[ROW, ID, PROBLEM])
        rows = table[ROW].to_numpy()
        first = np.diff(rows, prepend=-1) != 0  # of its chunks
        ids = table[ID].filter(pa.array(first & ~np.asarray(table[PROBLEM].is_valid()))).to_pylist()
        there = [id for id in ids if id not in (None, "")]
        missing += len(ids) - len(there)
        hashes.append(np.fromiter((hash(str(id)) for id in there), np.int64, len(there)))
    every = np.concatenate(hashes)
    return IdCounts(missing, len(every) - len(np.unique(every)))
