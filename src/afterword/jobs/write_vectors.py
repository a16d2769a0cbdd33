"""Write vectors to .jsonl, .parquet and .npy files, a block of rows at a time."""

from __future__ import annotations

import json
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np
import orjson
from numpy.typing import NDArray

from ..errors import DataError

Array = NDArray[np.floating[Any]]
Column = Sequence[Any]

FORMATS = ("jsonl", "parquet", "npy")
COPIED = 2**20  # bytes that are copied at a time


@dataclass(frozen=True)
class Block:
    """Some rows of a result.

    Attributes:
        columns: values by column name, n each.
        vectors: vectors by column name, (n, D) each; a row of NaN stands for a missing vector.
        unknown: how many of the texts are mostly unknown to the model.
    """

    columns: Mapping[str, Column]
    vectors: Mapping[str, Array]
    unknown: int = 0

    def __len__(self) -> int:
        """N rows."""
        return len(next(iter(self.vectors.values())))


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
