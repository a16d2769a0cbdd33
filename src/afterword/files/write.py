"""Vectors to .jsonl, .parquet and .npy, a block at a time. A file has its name only once it is whole."""

from __future__ import annotations

import errno
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError, MissingExtra

Array = NDArray[np.floating[Any]]
Column = Sequence[Any]

FORMATS = ("jsonl", "parquet", "npy")
HALF, PARTIAL = ".writing", ".partial"
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True)
class Block:
    """Some rows of a result.

    Attributes:
        columns: by name, n values each.
        vectors: by name, (n, D) each; a row of NaN is one that has no vector.
    """

    columns: Mapping[str, Column]
    vectors: Mapping[str, Array]

    def __len__(self) -> int:
        """N rows."""
        return len(next(iter(self.vectors.values())))


@contextmanager
def whole(path: Path, lines: bool = False) -> Iterator[BinaryIO]:
    """A file that is written beside its place and moved there when it is whole.

    Args:
        path: where it goes; what is there before stays until then.
        lines: a line stands by itself, so that after an error the finished ones are worth keeping.

    Yields:
        The open file. After any error it is removed; finished lines stay in ``NAME.partial``.

    Raises:
        DataError: it cannot be written; the disk is full.
    """
    half = path.with_name(path.name + HALF)
    try:
        file = half.open("w+b")
    except OSError as e:
        raise DataError(f"{path} cannot be written: {e.strerror or e}") from None
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        half.replace(path)
    except BaseException as e:
        kept = _keep_lines(half, path.with_name(path.name + PARTIAL)) if lines else "nothing of it was kept"
        half.unlink(missing_ok=True)
        if isinstance(e, OSError) and e.errno in FULL:
            raise DataError(f"{path} cannot be written whole: {os.strerror(e.errno)}; {kept}") from e
        raise


def _keep_lines(half: Path, partial: Path) -> str:
    """Keep the finished lines of a file that was not; say what was kept."""
    with half.open("r+b") as file:
        count = end = 0
        for line in file:
            if line.endswith(b"\n"):
                count, end = count + 1, end + len(line)
        file.truncate(end)
    if not count:
        return "nothing of it was kept"
    half.replace(partial)
    return f"{count} finished rows are kept in {partial}"


class Sink(ABC):
    """Where blocks go."""

    @abstractmethod
    def write(self, block: Block) -> None:
        """Add a block."""

    def close(self) -> None:
        """Write what stands at the end."""


class JsonLinesSink(Sink):
    """An object per row; a vector's numbers have the nine digits that tell every float32 from every other.

    Args:
        stream: open for writing bytes.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self.stream = stream

    def write(self, block: Block) -> None:
        """Add a block, and hand it on at once."""
        names = list(block.columns)
        vectors = [(json.dumps(name, ensure_ascii=False), spelled(rows)) for name, rows in block.vectors.items()]
        lines = []
        for row in range(len(block)):
            fields = [_field(name, block.columns[name][row]) for name in names]
            fields += [f"{name}: {found[row]}" for name, found in vectors]
            lines.append("{" + ", ".join(fields) + "}\n")
        self.stream.write("".join(lines).encode())
        self.stream.flush()


def spelled(rows: Array) -> list[str]:
    """Vectors as JSON, null for a row of NaN.

    >>> spelled(np.array([[0.5, 1], [np.nan, np.nan]], np.float32))
    ['[0.5, 1]', 'null']
    """
    pattern = "[" + ", ".join(["%.17g" if rows.dtype == np.float64 else "%.9g"] * rows.shape[1]) + "]"
    gone = np.asarray(np.isnan(rows).any(axis=1))
    found = ["null" if lost else pattern % tuple(row.tolist()) for row, lost in zip(rows, gone.tolist(), strict=True)]
    # JSON reads -0 as a whole number, which has no sign.
    return [row.replace("-0,", "-0.0,").replace("-0]", "-0.0]") for row in found]


def _field(name: str, value: object) -> str:
    return f"{json.dumps(name, ensure_ascii=False)}: {json.dumps(value, ensure_ascii=False)}"


class NpySink(Sink):
    """One array (n, D). Its header, which tells n, is written anew at the end.

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
        """Add a block of one vector a row."""
        (rows,) = block.vectors.values()
        self.file.write(np.ascontiguousarray(rows, self.dtype).data)
        self.rows += len(rows)

    def close(self) -> None:
        """Write the number of rows: numpy leaves room in the header for any."""
        self.file.seek(0)
        self._header()
        if self.file.tell() != self.start:
            raise AssertionError(f"numpy's header has grown from {self.start} to {self.file.tell()} bytes")
        self.file.seek(0, os.SEEK_END)


class ParquetSink(Sink):
    """A row group per block; vectors are lists of floats, null where there is none.

    Args:
        file: open for writing bytes.
        columns: by name, "text" or "number".
        vectors: by name, the dtype.
        notes: what is written into the file's schema.

    Raises:
        MissingExtra: pyarrow is not installed.
    """

    def __init__(
        self,
        file: BinaryIO,
        columns: Mapping[str, str],
        vectors: Mapping[str, np.dtype[Any]],
        notes: Mapping[str, str] | None = None,
    ) -> None:
        try:
            import pyarrow as pa
            import pyarrow.parquet as pq
        except ImportError:
            raise MissingExtra("pyarrow", "parquet") from None
        kinds = {"text": pa.string(), "number": pa.int64()}
        fields = [(name, kinds[kind]) for name, kind in columns.items()]
        fields += [(name, pa.list_(pa.from_numpy_dtype(dtype))) for name, dtype in vectors.items()]
        self.pa, self.schema = pa, pa.schema(fields, dict(notes or {}))
        self.writer = pq.ParquetWriter(file, self.schema)

    def write(self, block: Block) -> None:
        """Add a block."""
        if not len(block):
            return
        arrays = [self.pa.array(block.columns[f.name], f.type) for f in self.schema if f.name in block.columns]
        arrays += [self._lists(rows) for rows in block.vectors.values()]
        self.writer.write_table(self.pa.Table.from_arrays(arrays, schema=self.schema))

    def _lists(self, rows: Array) -> Any:
        gone = np.isnan(rows).any(1)
        lengths = np.where(gone, 0, rows.shape[1])
        ends = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        values = self.pa.array(np.ascontiguousarray(rows[~gone]).reshape(-1))
        return self.pa.ListArray.from_arrays(self.pa.array(ends), values, mask=self.pa.array(gone))

    def close(self) -> None:
        """Write the index of row groups."""
        self.writer.close()


def kind_of(path: Path | None) -> str:
    """The format that a file's ending names; "jsonl" for the standard output.

    Raises:
        DataError: it names none.

    >>> kind_of(Path("a.npy"))
    'npy'
    """
    kind = "jsonl" if path is None else path.suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        raise DataError(f"{path} is of no known format: write a .{', .'.join(FORMATS)} file")
    if kind == "parquet":
        _check_pyarrow()
    return kind


def _check_pyarrow() -> None:
    from importlib.util import find_spec

    if find_spec("pyarrow") is None:
        raise MissingExtra("pyarrow", "parquet")
