"""Where a result goes, and where the rows that have none are listed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import typer

from ..files.write import Array, JsonLines, Npy, Parquet, Sink, kind_of, whole
from .heard import say

SHOWN = 10  # rejected rows that are shown where no file lists them


class Rejects:
    """Rows without a vector, listed in a file that is there only if there are any.

    Args:
        path: of the file; None tells the first of them on stderr.
    """

    def __init__(self, path: Path | None) -> None:
        self.path, self.count = path, 0
        self._stack = ExitStack()
        self._file: BinaryIO | None = None

    def __enter__(self) -> Rejects:
        """Nothing is opened yet."""
        return self

    def add(self, row: int, line: int, reason: str) -> None:
        """List a row: its number in the output from 0, its line in the input from 1, and why."""
        self.count += 1
        if self.path is None:
            if self.count <= SHOWN:
                say(f"rejected: line {line}: {reason}")
            return
        self._file = self._file or self._stack.enter_context(whole(self.path))
        self._file.write((json.dumps({"row": row, "line": line, "reason": reason}) + "\n").encode())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Keep the file if all went well; one that an earlier run left goes where there is nothing to list."""
        self._stack.__exit__(kind, error, trace)
        if error is None and self.path is not None and not self.count:
            self.path.unlink(missing_ok=True)


@dataclass(frozen=True)
class Target:
    """Where the result goes.

    Args:
        path: of the file; None is the standard output.
        rejects: where rejected rows are listed; None goes by the path.
        columns: beside the vectors, by name, "text" or "number".
        notes: what a .parquet file says of itself.
    """

    path: Path | None
    rejects: Path | None
    columns: dict[str, str]
    notes: dict[str, str]

    @property
    def kind(self) -> str:
        """Its format."""
        return kind_of(self.path)

    @property
    def listing(self) -> Path | None:
        """Where rejected rows are listed."""
        beside = self.path.with_name(self.path.name + ".rejects.jsonl") if self.path is not None else None
        return self.rejects or beside

    def check(self, source: Path | None, vectors: int) -> None:
        """Refuse, before anything is loaded, what cannot be written.

        Raises:
            DataError: the ending names no format.
            typer.BadParameter: the input would be overwritten; an .npy file cannot hold so much.
        """
        if self.kind == "npy" and vectors > 1:
            raise typer.BadParameter(
                f"an .npy file holds one vector a row, and {vectors} methods are given: write .jsonl or .parquet",
                param_hint="--output",
            )
        for path in (self.path, self.listing):
            if path is not None and source is not None and path.exists() and path.samefile(source):
                raise typer.BadParameter(f"{path} is the input: choose another file", param_hint="--output")

    @contextmanager
    def opened(self) -> Iterator[BinaryIO]:
        """The file, or the standard output."""
        if self.path is None:
            yield typer.get_binary_stream("stdout")
        else:
            with whole(self.path, lines=self.kind == "jsonl") as file:
                yield file

    def sink(self, file: BinaryIO, empty: dict[str, Array]) -> Sink:
        """What writes blocks to the file; `empty` tells the widths."""
        if self.kind == "jsonl":
            return JsonLines(file)
        if self.kind == "npy":
            (rows,) = empty.values()
            return Npy(file, rows.shape[1], rows.dtype)
        return Parquet(file, self.columns, {name: rows.dtype for name, rows in empty.items()}, self.notes)
