"""Output files: .jsonl, .parquet and .npy, written by a job whose shards are joined."""

from __future__ import annotations

import json
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np
import orjson

from ..errors import DataError, InputError, JobError, plural
from ..files.atomic import atomic_file
from ..files.lines import Reader
from ..files.tables import value_of
from . import JOB, PROBLEM
from .job import INPUT, JOINED, LOCK, SHARDS, TEMPORARY, Job, locked, parts_in
from .rows import Array, Block, as_json
from .stored import to_notes

FORMATS = ("jsonl", "parquet", "npy")


COPIED = 2**20  # bytes that are copied at a time


class Sink(ABC):
    """A file or stream that blocks are written to; as a context manager it is closed, or discarded after an error."""

    @abstractmethod
    def write(self, block: Block) -> None:
        """Add a block."""

    @abstractmethod
    def append(self, part: Path) -> None:
        """Add the rows of a file that a sink of the same kind wrote."""

    def close(self) -> None:
        """Write what the format has at its end."""

    def discard(self) -> None:
        """Write nothing more: the file is thrown away."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Close the sink, or discard it after an error."""
        if kind is None:
            self.close()
        else:
            self.discard()


class JsonLinesSink(Sink):
    """A JSON object per row; every number of a vector reads back as the same float.

    Args:
        stream: open for writing bytes.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self.stream = stream

    def write(self, block: Block) -> None:
        """Add a block, and flush the stream."""
        names = list(block.columns)
        vectors = [(_name(name), spelled(rows)) for name, rows in block.vectors.items()]
        lines = []
        for row in range(len(block)):
            fields = [_name(name) + _json(block.columns[name][row]) for name in names]
            fields += [name + vector[row] for name, vector in vectors]
            lines.append(b"{" + b", ".join(fields) + b"}\n")
        self.stream.write(b"".join(lines))
        self.stream.flush()

    def append(self, part: Path) -> None:
        """Add the lines of a part."""
        with part.open("rb") as file:
            shutil.copyfileobj(file, self.stream, COPIED)


def spelled(rows: Array) -> list[bytes]:
    """Vectors as JSON, null for a row of NaN; each number is the shortest that reads back as the same float.

    >>> spelled(np.array([[0.5, 1], [np.nan, np.nan]], np.float32))
    [b'[0.5,1.0]', b'null']
    """
    rows = np.ascontiguousarray(rows)
    missing = np.asarray(np.isnan(rows).any(axis=1)).tolist()
    numpy = orjson.OPT_SERIALIZE_NUMPY
    return [b"null" if gone else orjson.dumps(row, option=numpy) for row, gone in zip(rows, missing, strict=True)]


def _name(name: str) -> bytes:
    return _json(name) + b": "


def _json(value: object) -> bytes:
    """A value by Python's own module, which also writes integers over 64 bits; those may come from the input."""
    return json.dumps(value, ensure_ascii=False).encode()


class NpySink(Sink):
    """One array (n, D) in numpy's format. The header, which holds n, is written again at the end.

    Args:
        file: open for writing bytes, and able to seek.
        width: D.
        dtype: of the array.
    """

    def __init__(self, file: BinaryIO, width: int, dtype: np.dtype[Any]) -> None:
        self.file, self.width, self.dtype, self.rows = file, width, dtype.newbyteorder("<"), 0
        self._header()
        self.start = file.tell()

    def _header(self) -> None:
        shape = {"descr": self.dtype.str, "fortran_order": False, "shape": (self.rows, self.width)}
        np.lib.format.write_array_header_1_0(self.file, shape)

    def write(self, block: Block) -> None:
        """Add a block with one vector per row."""
        (rows,) = block.vectors.values()
        self.file.write(np.ascontiguousarray(rows, self.dtype).data)
        self.rows += len(rows)

    def append(self, part: Path) -> None:
        """Add the rows of a part."""
        with part.open("rb") as file:
            np.lib.format.read_magic(file)
            shape, _, dtype = np.lib.format.read_array_header_1_0(file)
            if shape[1:] != (self.width,) or dtype != self.dtype:
                raise DataError(f"{part} holds rows of {shape[1:]} {dtype}, not of {self.width} {self.dtype}")
            shutil.copyfileobj(file, self.file, COPIED)
        self.rows += shape[0]

    def close(self) -> None:
        """Write the number of rows into the header, where numpy leaves room for any number."""
        self.file.seek(0)
        self._header()
        if self.file.tell() != self.start:
            raise AssertionError(f"numpy's header has grown from {self.start} to {self.file.tell()} bytes")
        self.file.seek(0, os.SEEK_END)


class ParquetSink(Sink):
    """A row group per block; vectors are lists of D floats, or null if missing.

    Args:
        file: open for writing bytes.
        columns: the type of each column: "text", "json" (a string, as `as_text` writes it), "number", or an Arrow type.
        vectors: an array (0, D) for each column of vectors.
        notes: metadata, written into the file's schema.
    """

    def __init__(
        self,
        file: BinaryIO,
        columns: Mapping[str, Any],
        vectors: Mapping[str, Array],
        notes: Mapping[str, str] | None = None,
    ) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        kinds = {"text": pa.string(), "json": pa.string(), "exact": pa.string(), "number": pa.int64()}
        fields = [(name, kinds[kind] if isinstance(kind, str) else kind) for name, kind in columns.items()]
        fields += [(name, pa.list_(pa.from_numpy_dtype(a.dtype), a.shape[1])) for name, a in vectors.items()]
        self.pa, self.schema, self.read = pa, pa.schema(fields, dict(notes or {})), pq.ParquetFile
        self.writer = pq.ParquetWriter(file, self.schema, compression="snappy")

    def write(self, block: Block) -> None:
        """Add a block."""
        if not len(block):
            return
        arrays = [self.pa.array(block.columns[f.name], f.type) for f in self.schema if f.name in block.columns]
        arrays += [self._lists(rows) for rows in block.vectors.values()]
        self.writer.write_table(self.pa.Table.from_arrays(arrays, schema=self.schema))

    def append(self, part: Path) -> None:
        """Add the row groups of a part."""
        with self.read(part) as file:
            for group in range(file.num_row_groups):
                self.writer.write_table(file.read_row_group(group))

    def _lists(self, rows: Array) -> Any:
        gone = np.isnan(rows).any(axis=1)
        values = self.pa.array(np.where(np.isnan(rows), 0, rows).reshape(-1))  # an entry of 0 under each null
        return self.pa.FixedSizeListArray.from_arrays(values, rows.shape[1], mask=self.pa.array(gone))

    def close(self) -> None:
        """Write the index of row groups."""
        self.writer.close()

    def discard(self) -> None:
        """End the writer, which would write its index when it is deleted, and the file may be closed then."""
        with suppress(OSError, ValueError):
            self.writer.close()


def kind_of(path: Path | None) -> str:
    """The format of an output file, by its ending; "jsonl" for the standard output.

    Raises:
        DataError: the ending is unknown.

    >>> kind_of(Path("a.npy"))
    'npy'
    """
    kind = "jsonl" if path is None else path.suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        raise DataError(f"{path} has an unknown format: write a .{', .'.join(FORMATS)} file")
    return kind


@dataclass(frozen=True)
class OutputFile:
    """The output file of a command.

    Args:
        path: the file, or a link to it.
        rejects: the file that lists rows without a vector; None = ``OUTPUT.rejects.jsonl``.
        overwrite: whether a file that exists is replaced.
    """

    path: Path
    rejects: Path | None = None
    overwrite: bool = False

    @property
    def file(self) -> Path:
        """The file that is written: where ``path`` is a link, the one that it points to."""
        return Path(os.path.realpath(self.path)) if self.path.is_symlink() else self.path

    @property
    def folder(self) -> Path:
        """The hidden folder of its job."""
        return self.file.with_name(f".{self.file.name}.job")

    @property
    def listing(self) -> Path:
        """The file that lists rows without a vector."""
        return self.rejects or self.path.with_name(self.path.name + ".rejects.jsonl")


def check_files(path: Path | None, listing: Path | None, source: Path | None, overwrite: bool) -> None:
    """Validate the files of a command, before a model is loaded.

    Args:
        path: the output; None = the standard output.
        listing: the list of rejected rows.
        source: the input.
        overwrite: whether files that exist are replaced.

    Raises:
        DataError: a folder does not exist or cannot be written.
        InputError: the output exists; two files are the same; the list would replace a different file.
    """
    written = [file for file in (path, listing) if file is not None]
    for file in written:
        check_place(file)
    if source is not None and any(same(file, source) for file in written):
        raise InputError(f"{source} is the input: choose another file")
    if path is not None and listing is not None and same(path, listing):
        raise InputError(f"{path} is named for the vectors and for the rejected rows: choose two files")
    if overwrite:
        return
    if path is not None and OutputFile(path).file.exists():
        raise InputError(f"{path} exists: choose another name, or --overwrite")
    if listing is not None and listing.exists() and listing.stat().st_size and not is_list(listing):
        raise InputError(f"{listing} exists and lists no rejected rows: choose another --rejects, or --overwrite")


def check_place(path: Path) -> None:
    """Refuse a path that no file can be written to.

    Raises:
        DataError: it is a folder or a device, or its own folder does not exist or cannot be written.
    """
    if path.exists() and not path.is_file():
        raise DataError(f"{path} is {'a folder' if path.is_dir() else 'not a file'}: give the name of a file")
    folder = Path(os.path.realpath(path)).parent
    if not folder.is_dir():
        raise DataError(f"{path} cannot be written: there is no folder {folder}: mkdir -p {folder}")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise DataError(f"{path} cannot be written: no file can be written into {folder}: chmod u+w {folder}")


def same(a: Path, b: Path) -> bool:
    """Whether two paths are one file, whatever links lead there."""
    try:
        return a.samefile(b)
    except OSError:  # one of them does not exist yet
        return os.path.realpath(a) == os.path.realpath(b)


SHOWN = 10  # number of rejected rows that are shown if there is no file for them


class Rejects:
    """Rows without a vector, which are listed in a file at the end, if there are any.

    Args:
        path: the file; None = the first `SHOWN` rows are passed to `tell`.
        tell: a function that shows a line to the user.
    """

    def __init__(self, path: Path | None, tell: Callable[[str], object] = lambda _: None) -> None:
        self.path, self.tell, self.lines = path, tell, list[bytes]()

    @property
    def count(self) -> int:
        """The number of rows without a vector."""
        return len(self.lines)

    def add(self, row: int, line: int | None, reason: str) -> None:
        """List a row: its number in the output from 0, its line in the input from 1 if it is known, and the reason."""
        self.lines.append(reject_line(row, line, reason))
        if self.path is None and self.count <= SHOWN:
            self.tell(f"rejected: line {line}: {reason}")

    def __enter__(self) -> Rejects:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Write the file, if there was no error."""
        if kind is None and self.path is not None and self.lines:
            with atomic_file(self.path) as file:
                file.writelines(self.lines)


def check_some(rows: int, rejected: int, listing: Path | None) -> None:
    """Refuse a result without any vector.

    Raises:
        DataError: every row was rejected.
    """
    if rows == rejected > 0:
        listed = "" if listing is None else f", listed in {listing}"
        raise DataError(f"no row could be embedded: {rows} of {rows} rejected{listed}")


def reject_line(row: int, line: int | None, reason: str | None) -> bytes:
    """A line of the list of rejected rows."""
    return (json.dumps({"row": row, "line": line, "reason": reason}) + "\n").encode()


def forget(path: Path) -> None:
    """Remove the list of an earlier run, and no other file."""
    if is_list(path):
        path.unlink()


def is_list(path: Path) -> bool:
    """Whether a file is a list of rejected rows, by its first line."""
    try:
        with path.open("rb") as file:
            return set(json.loads(file.readline(1 << 20))) == {"row", "line", "reason"}
    except (OSError, ValueError, TypeError, RecursionError):
        return False


def join(job: Job, path: Path, *, overwrite: bool = False) -> int:
    """Write all rows of a job to one .parquet, .jsonl or .npy file; a row without a vector is null there, or NaN.

    Args:
        job: the job; all its shards are done.
        path: the file.
        overwrite: a file that exists is replaced.

    Returns:
        The number of rows.

    Raises:
        JobError: a shard is not done.
        InputError: the file exists, or would be in the job's folder; an .npy file would need several vectors a row.
    """
    kind = kind_of(path)
    if Path(os.path.realpath(path)).is_relative_to(os.path.realpath(job.folder)):
        raise InputError(f"{path} would be a file of the job itself: choose a place outside {job.folder}")
    result = job.result()
    if not result.complete:
        left = len(job.plan) - result.shards
        raise JobError(f"{left} of {len(job.plan)} shards of {job.folder} are not done: give its command again")
    if path.exists() and not overwrite:
        raise InputError(f"{path} exists: choose another name, or --overwrite")
    if kind == "npy" and len(job.infos) > 1:
        raise InputError(
            f"an .npy file holds one vector a row, and {len(job.infos)} methods were given: join to .parquet"
        )
    with atomic_file(path) as file:
        return write_rows(job, file, kind, PROBLEM)


def write_rows(
    job: Job,
    file: BinaryIO,
    kind: str,
    problem: str,
    exact: Sequence[str] = (),
    reject: Callable[[bytes], object] = lambda _: None,
) -> int:
    """Write the rows of all shards to an open file; returns their number.

    Args:
        job: with all its shards.
        file: open for writing bytes.
        kind: its format.
        problem: the column that says why a row has no vector, which is left out.
        exact: columns that hold JSON.
        reject: called with a line for each row without a vector, as `reject_line` has it.
    """
    reader, infos, rows = job.read(), job.infos, 0
    schema = reader.schema.remove(reader.schema.get_field_index(problem)).with_metadata(
        to_notes(infos, job.result().unknown)
    )
    with _sink(file, kind, schema, list(infos)) as write:
        for batch in reader:
            for row, why in enumerate(batch.column(problem).to_pylist(), rows):
                if why is not None:
                    reject(reject_line(row, why["line"], why["reason"]))
            rows += len(batch)
            write(batch.select(schema.names), exact)
    return rows


@contextmanager
def _sink(file: BinaryIO, kind: str, schema: Any, vectors: list[str]) -> Iterator[Callable[[Any, Sequence[str]], None]]:
    """What writes a batch of rows."""
    if kind == "parquet":
        import pyarrow.parquet as pq

        with pq.ParquetWriter(file, schema, compression="snappy") as writer:
            yield lambda batch, _: writer.write_batch(batch) if len(batch) else None
        return
    empty = _rows(schema.empty_table().column(vectors[0]).combine_chunks())
    with JsonLinesSink(file) if kind == "jsonl" else NpySink(file, empty.shape[1], empty.dtype) as sink:
        yield lambda batch, exact: sink.write(_block(batch, vectors, exact if kind == "jsonl" else None))


def _block(batch: Any, vectors: list[str], exact: Sequence[str] | None) -> Block:
    """Rows as Python's values; with ``exact`` None, their vectors alone."""
    columns = {
        name: [json.loads(value) if name in exact else as_json(value) for value in map(value_of, batch.column(name))]
        for name in batch.schema.names
        if exact is not None and name not in vectors
    }
    return Block(columns, {name: _rows(batch.column(name)) for name in vectors})


def _rows(lists: Any) -> Array:
    """A column of vectors (n, D), NaN where there is none."""
    width = lists.type.list_size
    valid = np.asarray(lists.is_valid(), bool)
    values = lists.filter(lists.is_valid()).flatten().to_numpy(zero_copy_only=False).reshape(-1, width)
    rows = np.full(
        (len(lists), width), np.nan, values.dtype if len(values) else lists.type.value_type.to_pandas_dtype()
    )
    rows[valid] = values
    return rows


HIDDEN_PROBLEM = "afterword.problem"
"""The column of the hidden shards that says why a row has no vector: kept columns may have any plain name."""


@contextmanager
def opened_folder(output: OutputFile) -> Iterator[Path]:
    """Hold the hidden folder of an output; it is removed if no shard is finished at the end.

    Raises:
        DataError: another process writes the output.
    """
    folder = output.folder
    folder.mkdir(exist_ok=True)
    with locked(folder):
        if (folder / JOINED).exists() and output.file.exists() and same(folder / JOINED, output.file):
            remove(folder)  # killed when the output was complete
            folder.mkdir(exist_ok=True)
        try:
            yield folder
        finally:
            if not parts_in(folder):
                remove(folder)


def kept_in(folder: Path) -> str:
    """What is kept if a run ends now, and how it goes on."""
    parts = parts_in(folder)
    if not parts:
        return "no row was finished, and nothing is kept"
    rows = sum(Job.open(folder).plan[number].rows for number in parts)
    return f"{plural(rows, 'row')} kept in {folder}; the same command goes on from there"


def remove(folder: Path) -> None:
    """Remove what a job has written in its hidden folder: shards first, so that none outlives its job.json."""
    for path in [*(folder / SHARDS).glob("*.parquet"), *(folder / SHARDS).glob(TEMPORARY), *folder.glob(TEMPORARY)]:
        path.unlink(missing_ok=True)
    with suppress(OSError):
        (folder / SHARDS).rmdir()
    for name in (JOB, INPUT, JOINED, LOCK):
        (folder / name).unlink(missing_ok=True)
    with suppress(OSError):  # it holds files of others
        folder.rmdir()


def spool(folder: Path, source: BinaryIO | Reader) -> Path:
    """Write what can be read once only to a file in the hidden folder: a stream, or the texts of a command line."""
    with atomic_file(folder / INPUT) as file:
        if isinstance(source, Reader):
            file.writelines(json.dumps(record.fields).encode() + b"\n" for record in source)
        else:
            shutil.copyfileobj(source, file)
    return folder / INPUT


def finish(job: Job, output: OutputFile, columns: Mapping[str, Any]) -> int:
    """Join the shards, give the output its name, and remove the hidden folder.

    Args:
        job: with all its shards.
        output: the file.
        columns: the type of each column besides the vectors.

    Returns:
        The number of rows of the output, which are chunks where texts are split.

    Raises:
        DataError: no row has a vector, and nothing is written; the disk is full; or the name has been taken.
    """
    exact = [name for name, kind in columns.items() if kind == "exact"]
    joined, listed = job.folder / JOINED, list[bytes]()
    try:
        with atomic_file(joined) as file:
            rows = write_rows(job, file, kind_of(output.path), HIDDEN_PROBLEM, exact, listed.append)
    except DataError as e:
        raise DataError(f"{e}; {kept_in(job.folder)}") from None
    _list(output, listed)
    try:
        check_some(rows, len(listed), output.listing)
    except DataError:
        remove(job.folder)
        raise
    _give_name(joined, output)
    remove(job.folder)
    return rows


def _list(output: OutputFile, listed: Iterable[bytes]) -> None:
    lines = list(listed)
    if lines:
        with atomic_file(output.listing) as file:
            file.writelines(lines)
    elif output.rejects is None:
        forget(output.listing)


def _give_name(joined: Path, output: OutputFile) -> None:
    """Give the joined file its name; without --overwrite, never that of a file that has appeared since."""
    if not output.overwrite:
        try:
            os.link(joined, output.file)
            return
        except OSError:  # the name is taken, or the file system has no hard links
            if output.file.exists():
                raise DataError(
                    f"{output.path} has appeared since this run began: move it away, or --overwrite; the same command "
                    "goes on"
                ) from None
    joined.replace(output.file)
