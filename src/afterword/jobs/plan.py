"""The plan of a job: its input cut into shards, by the input alone, before anything is embedded."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from ..errors import JobError
from ..files.lines import USUAL_FORM, FileForm, Reader
from ..files.read import FORMATS, format_of, open_texts
from ..files.sources import check_file
from .items import Item, items_of
from .windows import windows

SHARD_ROWS = 1024  # what two cores embed in about 20 s with a model of the size of MiniLM to BERT-base


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
        spooled: the only file holds what came from the standard input, and is named so in messages.
    """

    files: tuple[Path, ...]
    kind: str | None = None
    field: str | None = None
    keep: tuple[str, ...] = ()
    form: FileForm = USUAL_FORM
    condition: str | None = None
    condition_field: str | None = None
    spooled: bool = False

    def open(self, file: int, tell: Callable[[str], object] = lambda _: None) -> Reader:
        """One of the files.

        Args:
            file: its number.
            tell: is given each choice that was made in reading it, if it is not the usual one.

        Raises:
            DataError: it cannot be read, or lacks a column.
        """
        path, beside = self.files[file], [*self.keep, *([self.condition_field] if self.condition_field else [])]
        form: dict[str, Any] = {"field": self.field, "beside": beside, "form": self.form, "tell": tell}
        if self.spooled:
            return open_texts(None, path.open("rb"), kind=self.kind, **form)
        check_file(path)
        with path.open("rb") as nothing:
            return open_texts(path, nothing, kind=self.kind, **form)

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
