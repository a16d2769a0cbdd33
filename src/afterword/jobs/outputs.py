"""Where vectors go: a file, or a stream such as the standard output."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ..errors import InputError
from ..files.write import Array, JsonLinesSink, NpySink, ParquetSink, Sink, kind_of, whole


@dataclass(frozen=True)
class Output:
    """Where vectors go.

    Args:
        path: of the file; None is a stream.
        rejects: where rows without a vector are listed; None goes by the path.
        columns: beside the vectors, by name, "text" or "number".
        notes: what a .parquet file says of itself.
    """

    path: Path | None
    rejects: Path | None
    columns: dict[str, str]
    notes: dict[str, str]

    @property
    def kind(self) -> str:
        """Its format.

        Raises:
            DataError: the ending names none.
        """
        return kind_of(self.path)

    @property
    def listing(self) -> Path | None:
        """Where rejected rows are listed."""
        beside = self.path.with_name(self.path.name + ".rejects.jsonl") if self.path is not None else None
        return self.rejects or beside

    def check(self, source: Path | None, vectors: int) -> None:
        """Refuse, before anything is loaded, what cannot be written.

        Args:
            source: the input file.
            vectors: of each row.

        Raises:
            DataError: the ending names no format.
            InputError: the input would be overwritten; an .npy file cannot hold so much.
        """
        if self.kind == "npy" and vectors > 1:
            raise InputError(
                f"an .npy file holds one vector a row, and {vectors} methods are given: write .jsonl or .parquet"
            )
        for path in (self.path, self.listing):
            if path is not None and source is not None and path.exists() and path.samefile(source):
                raise InputError(f"{path} is the input: choose another file")

    @contextmanager
    def opened(self, stream: BinaryIO) -> Iterator[BinaryIO]:
        """The file, which appears whole or not at all; or the stream where there is no path."""
        if self.path is None:
            yield stream
        else:
            with whole(self.path, lines=self.kind == "jsonl") as file:
                yield file

    def sink(self, file: BinaryIO, empty: dict[str, Array]) -> Sink:
        """What writes blocks of rows to the open file; `empty` holds arrays (0, D) by name."""
        if self.kind == "jsonl":
            return JsonLinesSink(file)
        if self.kind == "npy":
            (rows,) = empty.values()
            return NpySink(file, rows.shape[1], rows.dtype)
        return ParquetSink(file, self.columns, {name: rows.dtype for name, rows in empty.items()}, self.notes)
