"""Where embedded windows go: to the standard output at once, or into the parts of a file."""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import BinaryIO

import numpy as np

from ..errors import DataError, plural
from .contract import Contract
from .items import Item
from .rejects import Rejects
from .vectors_info import VectorsInfo
from .write_vectors import Array, Block, JsonLinesSink

NAMES = tuple(field.name for field in fields(Item))


@dataclass(frozen=True)
class Totals:
    """The rows of a finished run: all of them, those without a vector, those that are mostly unknown to the model."""

    rows: int
    rejected: int
    unknown: int = 0

    def check(self, listing: Path | None) -> None:
        """Refuse a result without any vector.

        Raises:
            DataError: every row was rejected.
        """
        if self.rows and self.rejected == self.rows:
            listed = "" if listing is None else f", as {listing} lists"
            raise DataError(f"no row could be embedded: {self.rows} of {self.rows} rejected{listed}")


@dataclass(frozen=True)
class RowsKey:
    """A hash of the rows of a window as they were read, and a short one of each row.

    >>> RowsKey.of([Item(1, "a")]) == RowsKey.of([Item(1, "b")])
    False
    """

    whole: str
    each: str

    @classmethod
    def of(cls, items: Iterable[Item]) -> RowsKey:
        """The key of rows, before they are embedded."""
        digest, sums = hashlib.blake2b(digest_size=16), []
        for item in items:
            row = json.dumps([getattr(item, name) for name in NAMES], default=repr).encode()
            digest.update(row + b"\n")
            sums.append(zlib.crc32(row))
        return cls(digest.hexdigest(), base64.b64encode(np.array(sums, "<u4").tobytes()).decode())

    def first_other(self, now: RowsKey) -> int:
        """The first row that differs, counted from 0; the number of equal rows if one key has more rows."""
        a, b = (np.frombuffer(base64.b64decode(key.each), "<u4") for key in (self, now))
        shared = min(len(a), len(b))
        differ = np.flatnonzero(a[:shared] != b[:shared])
        return int(differ[0]) if len(differ) else shared


class Store(ABC):
    """Takes the windows of a run, one by one and in order."""

    @property
    def begun(self) -> Contract | None:
        """What made the rows of an earlier run that this one goes on with; None if there is none."""
        return None

    def begin(self, empty: dict[str, Array], infos: Mapping[str, VectorsInfo], made_by: Contract) -> int:
        """Called once, when the model is loaded.

        Args:
            empty: an array (0, D) for each column of vectors.
            infos: what each column of vectors is made by.
            made_by: what else vectors depend on.

        Returns:
            The number of rows that were finished by an earlier run.

        Raises:
            DataError: the earlier run was made by another model or method.
        """
        return 0

    def has(self, number: int, first: int, items: Sequence[Item]) -> bool:
        """Whether a window was finished by an earlier run.

        Args:
            number: of the window, from 0.
            first: number of its first row, from 0.
            items: its rows, before they are embedded.

        Raises:
            DataError: these are not the rows that the earlier run read.
        """
        return False

    @abstractmethod
    def add(self, number: int, first: int, items: Sequence[Item], block: Block) -> None:
        """Add a window: its embedded rows, with the `problem` of each that has no vector."""

    @abstractmethod
    def finish(self, count: int) -> Totals:
        """Called when all windows were added, ``count`` of them.

        Raises:
            DataError: no row has a vector, and nothing is written.
        """

    @abstractmethod
    def kept(self) -> str:
        """What is kept if the run ends now, and how it goes on, in one sentence."""


class StreamStore(Store):
    """Rows are written as JSON lines, and handed on at once.

    Args:
        stream: open for writing bytes.
        rejects: the list of rows without a vector.
    """

    def __init__(self, stream: BinaryIO, rejects: Rejects) -> None:
        self.sink, self.rejects, self.rows = JsonLinesSink(stream), rejects, 0

    def add(self, number: int, first: int, items: Sequence[Item], block: Block) -> None:
        """Write the rows."""
        for row, item in enumerate(items, first):
            if item.problem is not None:
                self.rejects.add(row, item.line, item.problem)
        self.sink.write(block)
        self.rows += len(items)

    def finish(self, count: int) -> Totals:
        """The totals."""
        return Totals(self.rows, self.rejects.count)

    def kept(self) -> str:
        """What was written."""
        return f"{plural(self.rows, 'row')} written to the standard output; with --output FILE, a run can be continued"
