"""The plan of a job: its input cut into shards, by the input alone, before anything is embedded."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from ..errors import JobError
from ..files.lines import USUAL_FORM, FileForm, Reader
from ..files.read import FORMATS, format_of, open_texts
from ..files.sources import check_file
from .items import Item, items_of
from .store import RowsKey
from .windows import windows

SHARD_ROWS = 8192


@dataclass(frozen=True)
class Shard:
    """Some rows of one file.

    Attributes:
        number: of the shard, from 0.
        file: the number of its file among the inputs.
        first: its first row, counted in the file; ``row``: counted in all files.
        line: the line of its first row.
        rows: how many rows it has, and ``characters`` in their texts.
        key: a hash of the rows as they were read.
    """

    number: int
    file: int
    first: int
    row: int
    line: int
    rows: int
    characters: int
    key: str


@dataclass(frozen=True)
class Inputs:
    """The files of a job, and how they are read.

    Args:
        files: .txt, .jsonl, .csv, .tsv or .parquet files; all but the last may be gzipped.
        kind: their format; None = by each file's ending.
        field: the field that holds the texts.
        keep: fields that are written beside the vectors.
        form: how the files are written.
        condition, condition_field: as `items_of` takes them.
    """

    files: tuple[Path, ...]
    kind: str | None = None
    field: str | None = None
    keep: tuple[str, ...] = ()
    form: FileForm = USUAL_FORM
    condition: str | None = None
    condition_field: str | None = None

    def open(self, file: int, tell: Callable[[str], object] = lambda _: None) -> Reader:
        """One of the files.

        Args:
            file: its number.
            tell: is given each choice that was made in reading it, if it is not the usual one.

        Raises:
            DataError: it cannot be read, or lacks a column.
        """
        path, beside = self.files[file], [*self.keep, *([self.condition_field] if self.condition_field else [])]
        with path.open("rb") as nothing:
            return open_texts(path, nothing, kind=self.kind, field=self.field, beside=beside, form=self.form, tell=tell)

    def items(self, file: int) -> Iterator[Item]:
        """The rows of one of the files."""
        reader = self.open(file)
        try:
            yield from items_of(reader, self.condition, self.condition_field, self.keep)
        finally:
            reader.close()

    def kinds(self, tell: Callable[[str], object] = lambda _: None) -> dict[str, Any]:
        """The type of each kept column, which must be the same in all files.

        Args:
            tell: as `open` takes it, for each file once.

        Raises:
            DataError: a file cannot be read, or lacks a column.
            JobError: the types are not the same.
        """
        found: dict[str, Any] = {}
        for file, path in enumerate(self.files):
            reader = self.open(file, tell)
            reader.close()
            kinds = {name: reader.kinds[name] for name in self.keep}
            if file and kinds != found:
                name = next(name for name in kinds if kinds[name] != found[name])
                raise JobError(
                    f"the column {name!r} of {path} is {kinds[name]}, and of {self.files[0]} {found[name]}: "
                    "make the files alike"
                )
            found = kinds
        return found


def files_of(paths: Sequence[Path]) -> tuple[Path, ...]:
    """The files that are named, and those with a known ending in folders that are named, by their names' order.

    Raises:
        JobError: a folder holds none, or a file is given twice.
        MissingDataset: there is no such file.
    """
    files: list[Path] = []
    for path in paths:
        if not path.is_dir():
            check_file(path)
        inside = sorted(f for f in path.iterdir() if f.is_file() and format_of(f) in FORMATS) if path.is_dir() else None
        if inside == []:
            raise JobError(f"{path} holds no .{', .'.join(FORMATS)} file")
        files += [path] if inside is None else inside
    twice = next((f for i, f in enumerate(files) if f.resolve() in {g.resolve() for g in files[:i]}), None)
    if twice is not None:
        raise JobError(f"{twice} is given twice: name each file once")
    return tuple(files)


def cut(inputs: Inputs, rows: int = SHARD_ROWS) -> Iterator[tuple[Shard, list[Item]]]:
    """The shards, each with its rows: at most so many, and fewer where texts are long.

    Raises:
        DataError: a file cannot be read.
    """
    number = row = 0
    for file in range(len(inputs.files)):
        first = 0
        for items in windows(inputs.items(file), rows):
            characters = sum(len(item.text or "") for item in items)
            key = RowsKey.of(items).whole
            yield Shard(number, file, first, row, items[0].line, len(items), characters, key), items
            number, first, row = number + 1, first + len(items), row + len(items)


class ShardRows:
    """Reads the rows of shards: quickly where they are asked for in order, each file once.

    A file is read from its start where a shard comes before the last one: so a .gz file and any encoding can be read.

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
            JobError: they are not those of the plan.
        """
        file, at = self._at
        if file != shard.file or at > shard.first:
            self._items, at = self.inputs.items(shard.file), 0
        items = list(islice(self._items, shard.first - at, shard.first - at + shard.rows))
        self._at = shard.file, shard.first + shard.rows
        if RowsKey.of(items).whole != shard.key:
            self._at = (-1, 0)
            raise JobError(changed(self.inputs.files[shard.file], shard))
        return items


def changed(path: Path, shard: Shard) -> str:
    """What is said of an input that is not as it was planned."""
    return (
        f"{path} has changed since the job was begun: among the {shard.rows} rows from line {shard.line} on; nothing "
        "was removed: give it as it was, or --overwrite to start anew"
    )


def first_other(inputs: Inputs, shards: Sequence[Shard], rows: int) -> str | None:
    """What is said of the first shard that a new plan cuts in another way; None if the plan is the same."""
    number = -1
    for number, (now, items) in enumerate(cut(inputs, rows)):
        before = shards[number] if number < len(shards) else None
        if before is None or now.file < before.file or _longer(now, items, before):
            return f"{inputs.files[now.file]} has grown since the job was begun: give it as it was, or --overwrite"
        if now != before:
            return changed(inputs.files[now.file], now)
    if number + 1 < len(shards):
        return changed(inputs.files[min(shards[number + 1].file, len(inputs.files) - 1)], shards[number + 1])
    return None


def _longer(now: Shard, items: list[Item], before: Shard) -> bool:
    return now.rows > before.rows and RowsKey.of(items[: before.rows]).whole == before.key


def write_plan(shards: Iterable[Shard]) -> bytes:
    """A plan as JSON lines."""
    return b"".join(json.dumps(asdict(shard)).encode() + b"\n" for shard in shards)


def plan_key(written: bytes) -> str:
    """A hash of a plan that was written: a plan that lost its last lines would be that of a smaller job."""
    return hashlib.blake2b(written, digest_size=16).hexdigest()


def read_plan(path: Path, key: str | None = None) -> list[Shard]:
    """A plan that was written.

    Args:
        path: its file.
        key: its `plan_key`; None = not compared.

    Raises:
        JobError: it is missing or damaged.
    """
    try:
        written = path.read_bytes()
        found = [Shard(**_checked(json.loads(line))) for line in written.splitlines()]
    except (OSError, ValueError, TypeError) as e:
        raise JobError(f"{path} cannot be read ({e}): --overwrite starts the job anew") from None
    if not _is_whole(found) or key not in (None, plan_key(written)):
        raise JobError(f"{path} is damaged: --overwrite starts the job anew")
    return found


def _is_whole(shards: Sequence[Shard]) -> bool:
    """Whether each shard begins where the one before it ends, in its file or at the start of a later one."""
    before = Shard(-1, 0, 0, 0, 0, 0, 0, "")
    for shard in shards:
        first = before.first + before.rows if shard.file == before.file else 0
        if (shard.number, shard.first, shard.row) != (before.number + 1, first, before.row + before.rows):
            return False
        if shard.rows < 1 or shard.file < before.file:
            return False
        before = shard
    return True


def _checked(values: Any) -> Mapping[str, Any]:
    kinds = {name: str if name == "key" else int for name in Shard.__dataclass_fields__}
    if not isinstance(values, dict) or any(type(values.get(name)) is not kind for name, kind in kinds.items()):
        raise ValueError("not a shard")
    return values
