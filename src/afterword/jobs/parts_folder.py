"""Durable parts of an output file: finished windows that a run leaves behind, and from which the same run goes on.

They are in the folder ``OUTPUT.parts`` until the output is complete::

    job.json               what the run was begun with
    shards/000000.jsonl    the rows of a window, in the output's own format
    rejects/000000.jsonl   those without a vector, if there are any
    done/000000.json       says that the two are complete: checksums of them and of the rows that were read
    tmp/                   files that are being written
    lock                   held by the process that writes
    complete.json          the output is complete, and about to get its name

Each file is written in tmp/, and moved once it is on disk; a part counts only with its file in done/. Windows are cut
by the input alone, so that a run that was interrupted gives the same file as one that was not.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from ..errors import DataError, InputError, ModelError, plural
from ..files.atomic import FULL, moved_when_written, remove_left, sync, temporary
from ..files.folder_lock import LOCK, lock_folder
from .contract import Contract, check_made_by, check_same, plain, read, read_marker
from .items import Item
from .names import JOB
from .output_file import Output
from .rejects import forget, reject_line
from .store import RowsKey, Store, Totals
from .vectors_info import VectorsInfo
from .write_vectors import Array, Block, Sink

FORMAT = 1
COMPLETE = "complete.json"
SHARDS, REJECTS, DONE, TMP = FOLDERS = ("shards", "rejects", "done", "tmp")
NUMBER = re.compile(r"[0-9]{6}|[1-9][0-9]{6,}")
OURS = re.compile(r"[0-9]{6,}\.(jsonl|npy|parquet|json)|joined|job\.json|complete\.json")


@contextmanager
def open_parts(output: Output, tell: Callable[[str], object]) -> Iterator[PartsFolder]:
    """The parts of an output file, held by this process alone; they are removed if none was finished.

    Args:
        output: the output, with a file.
        tell: a function that shows a line to the user.

    Raises:
        DataError: another process writes the file; the parts were begun with other settings, or job.json is damaged.
        InputError: the file exists, and may not be replaced.
    """
    with ExitStack() as stack:
        try:
            stack.enter_context(lock_folder(output.parts, "writing", output.path))
        except ModelError as e:
            raise DataError(str(e)) from None
        except OSError as e:
            raise DataError(f"{output.parts} cannot be written: {e.strerror or e}") from None
        parts = PartsFolder(output, tell)
        try:
            parts.open()
            yield parts
        finally:
            if parts.finished or not parts.marked():
                with suppress(OSError):
                    parts.clear()


class PartsFolder(Store):
    """The parts of an output file, locked; `open_parts` makes it.

    Attributes:
        completed: the totals of an earlier run that was interrupted after its output got its name: nothing is left to
            do; None if there is no such run.
        numbers: of the rows, from 0, in the list of those without a vector; None = one after the other.
        finished: the parts are no longer needed, and are removed at the end.
    """

    def __init__(self, output: Output, tell: Callable[[str], object]) -> None:
        contract = {**output.settings, "columns": output.columns}
        self.output, self.settings, self.tell, self.path = output, plain(contract), tell, output.parts
        self.completed: Totals | None = None
        self.numbers: Sequence[int] | None = None
        self.finished = False
        self._source = source_stamp(output)  # before the rows are read
        self._done: dict[int, Totals] = {}
        self._key: RowsKey | None = None
        self._empty: dict[str, Array] = {}
        self._infos: Mapping[str, VectorsInfo] = {}

    def open(self) -> None:
        """Check the settings of an earlier run, and remove what it did not finish."""
        self.completed = completed(self.output)
        if self.completed is not None:  # only its parts, or some of them, are left
            self.finished = True
            return
        self.output.check_new()  # it may have appeared while this process waited for its input
        if self.output.listing is not None:
            remove_left(self.output.listing)
        job = self._job()
        if job is None or (self.output.overwrite and job["settings"] != self.settings):
            self.clear()
        else:
            before = {"format": job.get("format"), **job["settings"]}
            check_same(self.path, before, {"format": FORMAT, **self.settings})
        self._remove(TMP)

    def _job(self) -> Contract | None:
        """What the parts were begun with; None if there are none, or if they may be replaced.

        Raises:
            DataError: there are parts, and what they were begun with cannot be read.
        """
        path = self.path / JOB
        job = read(path)
        if job is not None and isinstance(job.get("settings"), dict) and isinstance(job.get("made_by"), dict):
            return job
        if self.marked() and not self.output.overwrite:
            raise DataError(
                f"{path} is {'damaged' if path.exists() else 'missing'}, so that it is not known how the parts were "
                "made: nothing was removed; --overwrite starts anew"
            )
        return None

    @property
    def begun(self) -> Contract | None:
        """What made the parts that are there; None if there are none."""
        job = self._job()
        return None if job is None else job["made_by"]

    @property
    def _begun(self) -> Contract:
        return {"format": FORMAT, "model": self.output.model, "settings": self.settings}

    def begin(self, empty: dict[str, Array], infos: Mapping[str, VectorsInfo], made_by: Contract) -> int:
        """Compare what made the parts; write job.json for the first one; check the parts that are there."""
        self._empty, self._infos = empty, infos
        job, made_by = self._job(), plain(made_by)
        if job is not None and self.output.overwrite and job["made_by"] != made_by:
            self.clear()
            job = None
        if job is not None:
            before, now = job["made_by"], made_by
            if before.get("identity") != now.get("identity"):  # the name of another model says more than its hash
                before, now = {"--model": job.get("model"), **before}, {"--model": self.output.model, **now}
            check_made_by(self.path, before, now)
        with self._writing():
            for name in FOLDERS:
                (self.path / name).mkdir(exist_ok=True)
            sync(self.path.parent)
            if job is None:
                self._write_json(JOB, {**self._begun, "made_by": made_by})
        (self.path / COMPLETE).unlink(missing_ok=True)
        for number in self.marked():
            self._check(number)
        return sum(done.rows for done in self._done.values())

    def marked(self) -> list[int]:
        """The numbers of the parts that are complete."""
        stems = (path.stem for path in (self.path / DONE).glob("*.json"))
        return sorted(int(stem) for stem in stems if NUMBER.fullmatch(stem))

    def _check(self, number: int) -> None:
        """Count a part that is as it was when it was finished; remove the marker of another one."""
        marker = read_marker(self._marker(number)) or {}
        checksums = checksum(self._part(number)), checksum(self._listing(number)) if marker.get("rejected") else None
        if checksums == (marker.get("part", ""), marker.get("listing")):
            self._done[number] = Totals(marker["rows"], marker["rejected"], marker.get("unknown", 0))
            return
        self.tell(f"warning: part {number:06} in {self.path} is damaged: its rows are embedded again")
        self._marker(number).unlink()

    def has(self, number: int, first: int, items: Sequence[Item]) -> bool:
        """Whether there is a part of these rows."""
        self._key = RowsKey.of(items)
        marker = read_marker(self._marker(number)) if number in self._done else None
        if marker is None:
            return False
        before = RowsKey(marker["input"], marker["each"])
        if before == self._key:
            return True
        if not self.output.overwrite:
            other = before.first_other(self._key)
            line = f" (line {items[other].line})" if other < len(items) else ""
            self._refuse(f"row {first + other + 1}{line} is another")
        del self._done[number]
        self._marker(number).unlink()
        return False

    def _refuse(self, how: str) -> None:
        raise DataError(
            f"{self.output.source or 'the input'} has changed since {self.path} was begun: {how}; nothing was removed: "
            "give it as it was, or --overwrite to embed what changed"
        )

    def add(self, number: int, first: int, items: Sequence[Item], block: Block) -> None:
        """Write a part: its rows, the rows without a vector, and the file that says that it is complete."""
        rows = range(first, first + len(items)) if self.numbers is None else self.numbers[first : first + len(items)]
        listed = zip(rows, items, strict=True)
        rejected = [reject_line(row, i.line, i.problem) for row, i in listed if i.problem is not None]
        with self._writing():
            with self._moved(self._part(number)) as file, self._sink(file) as sink:
                sink.write(block)
            if rejected:
                with self._moved(self._listing(number)) as file:
                    file.write(b"".join(rejected))
            assert self._key is not None  # of the rows before they were embedded: `has` was called
            marker = {
                "rows": len(items), "rejected": len(rejected), "unknown": block.unknown,
                "input": self._key.whole, "each": self._key.each, "part": checksum(self._part(number)),
                "listing": checksum(self._listing(number)) if rejected else None,
            }  # fmt: skip
            self._write_json(f"{DONE}/{number:06}.json", marker)
        self._done[number] = Totals(len(items), len(rejected), block.unknown)

    def finish(self, count: int) -> Totals:
        """Join the parts, give the output its name, and remove the parts.

        Raises:
            DataError: the input has fewer rows than an earlier run read; no row has a vector; the disk is full; the
                file exists, made by another process since this run began.
        """
        beyond = [number for number in self._done if number >= count]
        if beyond and not self.output.overwrite:
            rows = sum(done.rows for number, done in self._done.items() if number < count)
            self._refuse(f"it ends after row {rows}, and more were read before")
        for number in beyond:
            del self._done[number]
            self._marker(number).unlink()
        done = [self._done[number] for number in range(count)]
        totals = Totals(sum(d.rows for d in done), sum(d.rejected for d in done), sum(d.unknown for d in done))
        rejected = [number for number in range(count) if done[number].rejected]
        self._check_new()
        if totals.rows == totals.rejected > 0:
            self._list_rejects(rejected)
            self.finished = True
            totals.check(self.output.listing)
        joined = self.path / TMP / "joined"
        with self._writing():
            with joined.open("w+b") as file:
                with self._sink(file, totals.unknown) as sink:
                    for number in range(count):
                        sink.append(self._part(number))
                file.flush()
                os.fsync(file.fileno())
            ends = {"output": stamp(joined), "input": self._source, "command": self.output.command}
            self._write_json(COMPLETE, {**ends, **vars(totals)})
        self._list_rejects(rejected)
        self._name(joined)
        sync(self.output.file.parent)
        self.finished = True
        return totals

    def _check_new(self) -> None:
        if self.output.file.exists() and not self.output.overwrite:
            raise DataError(
                f"{self.output.path} has appeared since this run began: move it away, or --overwrite; {self.kept()}"
            )

    def _name(self, joined: Path) -> None:
        """Give the joined file its name; without --overwrite, never that of a file that is there."""
        if self.output.overwrite:
            joined.replace(self.output.file)
            return
        try:
            os.link(joined, self.output.file)
        except OSError:  # the name was taken just now; or the file system has no hard links
            self._check_new()
            joined.replace(self.output.file)
        else:
            joined.unlink()

    def _list_rejects(self, numbers: Sequence[int]) -> None:
        listing = self.output.listing
        if listing is None:
            return
        if not numbers:
            if self.output.rejects is None:
                forget(listing)
            return
        try:
            self.output.check_listing()  # again: the file may have appeared since this run began
        except InputError as e:
            raise DataError(f"{e}; {self.kept()}") from None
        with self._writing(listing), moved_when_written(temporary(listing), listing) as file:
            for number in numbers:
                file.write(self._listing(number).read_bytes())

    def kept(self) -> str:
        """What is kept."""
        rows = sum((read_marker(self._marker(number)) or {}).get("rows", 0) for number in self.marked())
        return (
            f"{plural(rows, 'row')} kept in {self.path}; the same command goes on from there"
            if rows
            else "no window was finished, and nothing is kept"
        )

    def clear(self) -> None:
        """Remove all that runs have written here; complete.json goes last, and files of others stay."""
        self._done.clear()
        for name in (DONE, SHARDS, REJECTS, TMP):
            self._remove(name)
            with suppress(OSError):  # it does not exist, or holds files of others
                (self.path / name).rmdir()
        for name in (JOB, COMPLETE):
            (self.path / name).unlink(missing_ok=True)

    def _remove(self, name: str) -> None:
        for path in sorted((self.path / name).glob("*")):
            if OURS.fullmatch(path.name):
                path.unlink()

    def _part(self, number: int) -> Path:
        return self.path / SHARDS / f"{number:06}.{self.output.kind}"

    def _listing(self, number: int) -> Path:
        return self.path / REJECTS / f"{number:06}.jsonl"

    def _marker(self, number: int) -> Path:
        return self.path / DONE / f"{number:06}.json"

    def _sink(self, file: BinaryIO, unknown: int = 0) -> Sink:
        return self.output.sink(file, self._empty, self._infos, unknown)

    def _moved(self, path: Path) -> Any:
        return moved_when_written(self.path / TMP / path.name, path)

    def _write_json(self, name: str, values: Contract) -> None:
        with self._moved(self.path / name) as file:
            file.write(json.dumps(values, indent=1).encode())

    @contextmanager
    def _writing(self, path: Path | None = None) -> Iterator[None]:
        try:
            yield
        except OSError as e:
            if e.errno not in FULL:
                raise
            raise DataError(
                f"{path or self.output.path} cannot be written: {os.strerror(e.errno)}; {self.kept()}"
            ) from e


def checksum(path: Path) -> str | None:
    """A hash of a file; None if it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
    except OSError:
        return None


def stamp(path: Path) -> list[int]:
    """What stays of a file when it is renamed: its size, time and inode."""
    state = path.stat()
    return [state.st_size, state.st_mtime_ns, state.st_ino]


def source_stamp(output: Output) -> list[int] | None:
    """What changes with the input; None where that is no file, so that its rows alone can tell."""
    return stamp(output.source) if output.source is not None and output.source.is_file() else None


def completed(output: Output) -> Totals | None:
    """The totals of a run that was interrupted after its output got its name.

    Returns:
        None if there is no such run, if its input may have changed since, or if its output is to be replaced.
    """
    found, source = read(output.parts / COMPLETE), source_stamp(output)
    if found is None or source is None or output.overwrite or not output.file.is_file():
        return None
    now = {"output": stamp(output.file), "input": source, "command": plain(output.command)}
    rows, rejected = found.get("rows"), found.get("rejected")
    same = all(found.get(name) == value for name, value in now.items())
    return Totals(rows, rejected) if same and isinstance(rows, int) and isinstance(rejected, int) else None


def remove_empty(output: Output) -> bool:
    """Remove the folder of parts of a run that was killed at its very end, when it had removed all but the lock.

    Returns:
        Whether there was such a folder.
    """
    if output.parts.is_dir() and set(os.listdir(output.parts)) <= {LOCK}:
        with suppress(ModelError), lock_folder(output.parts, "writing", output.path):
            return True
    return False
