"""The output of a job: its files, and what is refused before a model is loaded."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from ..errors import DataError, InputError
from .rejects import is_list
from .vectors_info import VectorsInfo, to_notes
from .write_vectors import Array, JsonLinesSink, NpySink, ParquetSink, Sink, kind_of

PARTS = ".parts"


@dataclass(frozen=True)
class Output:
    """The output of a job.

    Args:
        path: the file; None = a stream.
        rejects: the file that lists rows without a vector; None = beside the output file.
        columns: the type of each column beside the vectors: "text", "json", "number", or an Arrow type.
        source: the input file; None = another input.
        overwrite: files that exist, and parts that were made in another way, are replaced.
        settings: what the command asks for, by the names of its options: parts of other settings do not fit.
        model: the model, as the command names it.
    """

    path: Path | None
    rejects: Path | None
    columns: dict[str, Any]
    source: Path | None = None
    overwrite: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)
    model: str = ""

    @property
    def command(self) -> dict[str, Any]:
        """The settings with the names of the model and of the input."""
        return {"--model": self.model, "--input": str(self.source), **self.settings}

    @property
    def kind(self) -> str:
        """The format.

        Raises:
            DataError: the ending of the file's name is unknown.
        """
        return kind_of(self.path)

    @property
    def file(self) -> Path:
        """The file that is written: where ``path`` is a link, the one that it points to."""
        assert self.path is not None
        return Path(os.path.realpath(self.path)) if self.path.is_symlink() else self.path

    @property
    def parts(self) -> Path:
        """The folder of finished parts, beside the file."""
        return self.file.with_name(self.file.name + PARTS)

    @property
    def listing(self) -> Path | None:
        """The file that lists rejected rows; None for a stream."""
        beside = self.path.with_name(self.path.name + ".rejects.jsonl") if self.path is not None else None
        return self.rejects or beside

    def check(self, vectors: int) -> None:
        """Validate the format and the paths, before a model is loaded.

        Args:
            vectors: the number of vectors of each row.

        Raises:
            DataError: the ending of the file's name is unknown; a folder does not exist.
            InputError: an .npy file would need several vectors a row; two files are the same; a file that is no list
                of rejected rows would be replaced by one.
        """
        if self.kind == "npy" and vectors > 1:
            raise InputError(
                f"an .npy file holds one vector a row, and {vectors} methods are given: write .jsonl or .parquet"
            )
        for path in (self.path, self.listing):
            if path is not None:
                check_place(path)
        if self.path is not None and self.listing is not None and same(self.path, self.listing):
            raise InputError(f"{self.path} is given for the vectors and for the rejected rows: choose two files")
        for path in (self.path, self.listing):
            if path is not None and self.source is not None and same(path, self.source):
                raise InputError(f"{path} is the input: choose another file")
        if self.path is not None:
            for path in (self.source, self.listing):
                if path is not None and same(path, self.parts):
                    raise InputError(f"{path} is where parts of the output are kept: choose another name")
                if path is not None and self.parts.resolve() in path.resolve().parents:
                    raise InputError(f"{path} is in {self.parts}, where parts of the output are kept: move it")
        self.check_listing()

    def check_listing(self) -> None:
        """Refuse to replace a file by the list of rejected rows, unless it is such a list or may be replaced.

        Raises:
            InputError: it holds something else.
        """
        listing = self.listing
        if listing is not None and not self.overwrite and not is_list(listing) and holds_something(listing):
            raise InputError(f"{listing} exists and lists no rejected rows: choose another --rejects, or --overwrite")

    def check_new(self, ended: bool = False) -> None:
        """Refuse a file that exists, unless it may be replaced.

        Args:
            ended: a run that was killed has left no part: nothing of it was left to do.

        Raises:
            InputError: it exists.
        """
        if self.path is not None and self.file.exists() and not self.overwrite:
            complete = ", and is complete" if ended else ""
            raise InputError(f"{self.path} exists{complete}: choose another name, or --overwrite")

    def sink(self, file: BinaryIO, empty: dict[str, Array], infos: Mapping[str, VectorsInfo], unknown: int = 0) -> Sink:
        """The writer of blocks to the open file.

        Args:
            file: open for writing bytes.
            empty: an array (0, D) for each column of vectors.
            infos: what each of them is made by, for a .parquet file.
            unknown: how many texts are mostly unknown to the model, for such a file too.
        """
        if self.kind == "jsonl":
            return JsonLinesSink(file)
        if self.kind == "npy":
            (rows,) = empty.values()
            return NpySink(file, rows.shape[1], rows.dtype)
        return ParquetSink(file, self.columns, empty, to_notes(infos, unknown))


def check_place(path: Path) -> None:
    """Refuse a path that no file can be written to.

    Raises:
        DataError: it is a folder or a device, or its own folder does not exist or cannot be written.
    """
    if path.is_dir():
        raise DataError(f"{path} is a folder: give the name of a file")
    if path.exists() and not path.is_file():
        raise DataError(f"{path} is not a file: give the name of a file")
    folder = Path(os.path.realpath(path)).parent
    if not folder.is_dir():
        raise DataError(f"{path} cannot be written: there is no folder {folder}: mkdir -p {folder}")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise DataError(f"{path} cannot be written: no file can be written into {folder}: chmod u+w {folder}")


def holds_something(path: Path) -> bool:
    """Whether there is such a file, and it is not empty."""
    return path.exists() and path.stat().st_size > 0


def same(a: Path, b: Path) -> bool:
    """Whether two paths are one file, whatever links lead there."""
    try:
        return a.samefile(b)
    except OSError:  # one of them does not exist yet
        return os.path.realpath(a) == os.path.realpath(b)
