"""Read texts and vectors from .parquet files that ``embed`` wrote, in bounded memory."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError
from ..files.lines import TEXT
from .names import JOB
from .vectors_info import PREFIX, VectorsInfo, read_info, read_unknown
from .write_vectors import Array

ROWS = 4096  # number of rows that are read at a time
CHUNK = "chunk"  # a column of files of chunks, whose equal texts may have other vectors
OF_WORDS = {"line", "text", "word", "start", "end"}  # the columns of a file of words

Rows = NDArray[np.int64]


class StoredVectors:
    """A .parquet file of texts and vectors, or the parts of one. Rows count from 0, through all parts.

    Args:
        path: the file, or the folder of the parts.
        parts: the parts in their order; by default the file alone.
        unknown: how many texts are mostly unknown to the model; None = as the file says.

    Raises:
        DataError: it was not written by ``embed``, or not from texts; there is no part, or the parts were made by
            different encoders.
        MissingExtra: pyarrow is not installed.

    Attributes:
        infos: what each column of vectors was made by.
        unknown: how many texts are mostly unknown to the model; 0 where that was not written down.
        first: (n,) for each row, the first row with the same text and a vector; if none has one, the first row. Each
            row of a file of chunks stands for itself.
    """

    def __init__(self, path: Path, parts: Sequence[Path] | None = None, unknown: int | None = None) -> None:
        self.path, self.parts = path, [path] if parts is None else list(parts)
        if not self.parts:
            raise DataError(f"{path} holds no vectors yet")
        self.infos: Mapping[str, VectorsInfo] = read_info(self.parts[0])
        for part in self.parts[1:]:
            if _made_by(read_info(part)) != _made_by(self.infos):
                raise DataError(f"{part} was made by another encoder than {self.parts[0]}: embed the texts again")
        self.unknown = read_unknown(self.parts[0]) if unknown is None else unknown
        names = set(_opened(self.parts[0]).schema_arrow.names)
        self._chunks = CHUNK in names
        if TEXT not in names or names >= OF_WORDS:
            raise DataError(f"{path} holds no vectors of texts: it has the columns {', '.join(sorted(names))}")

    def __len__(self) -> int:
        """The number of rows, those without a vector included."""
        return sum(int(_opened(part).metadata.num_rows) for part in self.parts)

    def _batches(self, column: str) -> Iterator[tuple[int, Any]]:
        """The values of a column, batch by batch, each with the number of its first row."""
        start = 0
        for part in self.parts:
            with _opened(part) as file:
                for batch in file.iter_batches(ROWS, columns=[column]):
                    yield start, batch.column(0)
                    start += batch.num_rows

    @cached_property
    def first(self) -> Rows:
        """For each row, the first row with the same text and a vector; if none has one, the first row."""
        if self._chunks:
            return np.arange(len(self))
        digests = np.zeros(len(self), "S16" if not len(self) else [("a", "<u8"), ("b", "<u8")])
        for start, texts in self._batches(TEXT):
            keys = b"".join(hashlib.blake2b(repr(text).encode(), digest_size=16).digest() for text in texts.to_pylist())
            digests[start : start + len(texts)] = np.frombuffer(keys, digests.dtype)
        order = np.argsort(~self.valid, kind="stable")  # rows with a vector come first
        _, first, index = np.unique(digests[order], return_index=True, return_inverse=True)
        found = np.empty(len(self), np.int64)
        found[order] = order[first[index]]
        return found

    @cached_property
    def valid(self) -> NDArray[np.bool_]:
        """Whether each row has a vector (n,). A row has one in every column of vectors, or in none."""
        parts = [np.asarray(lists.is_valid(), bool) for _, lists in self._batches(next(iter(self.infos)))]
        return np.concatenate([np.zeros(0, bool), *parts])

    def blocks(self, column: str) -> Iterator[tuple[Rows, Array]]:
        """Rows (m,) and their vectors (m, D), without those that repeat an earlier text or have no vector."""
        for start, lists in self._batches(column):
            rows = np.arange(start, start + len(lists))
            kept = np.asarray(lists.is_valid()) & (self.first[rows] == rows)
            values = lists.filter(kept).flatten().to_numpy(zero_copy_only=False)
            yield rows[kept], values.reshape(-1, lists.type.list_size)

    def missing(self) -> int:
        """The number of rows without a vector."""
        return int(np.count_nonzero(~self.valid))

    def vectors(self, column: str, rows: Rows) -> Array:
        """The vectors (k, D) of some rows, which are in ascending order."""
        parts = [vectors[np.isin(found, rows)] for found, vectors in self.blocks(column)]
        return np.concatenate([np.zeros((0, self.infos[column].dimension), np.float32), *parts])

    def texts(self, rows: Rows) -> list[str]:
        """The texts of some rows, which are in ascending order."""
        found: list[str] = []
        for start, texts in self._batches(TEXT):
            low, high = np.searchsorted(rows, [start, start + len(texts)])
            found += texts.take(rows[low:high] - start).to_pylist()
        return found

    def lines(self, rows: Rows) -> list[list[int]]:
        """For some rows, all rows with the same text, counted from 1."""
        order = np.argsort(self.first, kind="stable")
        low, high = (np.searchsorted(self.first[order], rows, side) for side in ("left", "right"))
        return [(order[i:j] + 1).tolist() for i, j in zip(low, high, strict=True)]


def _opened(path: Path) -> Any:
    import pyarrow.parquet as pq

    return pq.ParquetFile(path, pre_buffer=False)  # which would hold the whole file


def _made_by(infos: Mapping[str, VectorsInfo]) -> list[tuple[str, str, int]]:
    return [(column, info.identity, info.dimension) for column, info in infos.items()]


def holds_vectors(path: Path) -> bool:
    """Whether ``embed`` has written the path: a .parquet file with what its vectors were made by, or a job's folder."""
    if path.is_dir():
        return (path / JOB).is_file()
    if path.suffix.lower() != ".parquet" or not path.is_file():
        return False
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq

        notes = pq.read_schema(path).metadata or {}
    except (pa.ArrowInvalid, OSError):
        return False
    return any(key.startswith(PREFIX.encode()) and key.endswith(b"identity") for key in notes)
