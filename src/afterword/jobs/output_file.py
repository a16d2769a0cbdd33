"""The output of a job: a file, or a stream such as the standard output."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ..errors import InputError
from ..files.atomic import PARTIAL, WRITING, atomic_file
from ..files.vectors_info import VectorsInfo, to_notes
from ..files.write_vectors import Array, JsonLinesSink, NpySink, ParquetSink, Sink, kind_of


@dataclass(frozen=True)
class Output:
    """The output of a job.

    Args:
        path: the file; None = a stream.
        rejects: the file that lists rows without a vector; None = beside the output file.
        columns: the type of each column beside the vectors: "text" or "number".
    """

    path: Path | None
    rejects: Path | None
    columns: dict[str, str]

    @property
    def kind(self) -> str:
        """The format.

        Raises:
            DataError: the ending of the file's name is of no known format.
        """
        return kind_of(self.path)

    @property
    def listing(self) -> Path | None:
        """The file that lists rejected rows; None for a stream."""
        beside = self.path.with_name(self.path.name + ".rejects.jsonl") if self.path is not None else None
        return self.rejects or beside

    def check(self, source: Path | None, vectors: int) -> None:
        """Validate the output, before a model is loaded.

        Args:
            source: the input file.
            vectors: the number of vectors of each row.

        Raises:
            DataError: the ending of the file's name is of no known format.
            InputError: the input would be overwritten, or an .npy file would need several vectors a row.
        """
        if self.kind == "npy" and vectors > 1:
            raise InputError(
                f"an .npy file holds one vector a row, and {vectors} methods are given: write .jsonl or .parquet"
            )
        if self.path is not None and self.path == self.listing:
            raise InputError(f"{self.path} is given for the vectors and for the rejected rows: choose two files")
        beside = [] if self.path is None else [self.path.with_name(self.path.name + end) for end in (WRITING, PARTIAL)]
        for path in (self.path, self.listing, *beside):
            if path is not None and source is not None and path.exists() and path.samefile(source):
                raise InputError(f"{path} is the input: choose another file")

    @contextmanager
    def opened(self, stream: BinaryIO) -> Iterator[BinaryIO]:
        """The open file, which gets its name once it is complete; or the stream, if there is no file."""
        if self.path is None:
            yield stream
        else:
            with atomic_file(self.path, lines=self.kind == "jsonl") as file:
                yield file

    def sink(self, file: BinaryIO, empty: dict[str, Array], infos: Mapping[str, VectorsInfo]) -> Sink:
        """The writer of blocks to the open file.

        Args:
            file: open for writing bytes.
            empty: an array (0, D) for each column of vectors.
            infos: what each of them is made by, for a .parquet file.
        """
        if self.kind == "jsonl":
            return JsonLinesSink(file)
        if self.kind == "npy":
            (rows,) = empty.values()
            return NpySink(file, rows.shape[1], rows.dtype)
        return ParquetSink(file, self.columns, empty, to_notes(infos))
