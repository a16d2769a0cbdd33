"""Stored vectors: what made them, their probe vectors, and reading them again."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError
from ..files.lines import TEXT
from . import CHUNK_COLUMNS, JOB, WORD_COLUMNS
from .rows import Array

PREFIX = "afterword."
UNKNOWN = f"{PREFIX}unknown"
"""The number of texts of a file that are mostly unknown to the model."""
READ = 4096  # rows that are read at a time
TOLERANCE = 1e-4
"""The largest difference of probe vectors that agree, as a share of their length."""

PROBE_TEXTS = (
    "The bank raised its rates.",
    "We walked along the bank of the river.",
    "是的，银行昨天提高了利率。",
    "12 + 30 = 42; 3.14159; 2026-11-22; 0x1F",
    "👩‍👩‍👧 🎉 ❤️",
    "def add(a, b):\n    return a + b",
    "no",
    "It had rained for a week, and the river stood so high that nobody dared to cross it; "
    "the old ferryman sat under his roof and told whoever came by of the flood that his father had seen. " * 4,
)

Rows = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class VectorsInfo:
    """What made a column of vectors.

    Attributes:
        model: the model, as the command named it.
        method: the method as JSON, which `methods.serialize.from_json` reads.
        fingerprint: of the encoder: with an equal one, vectors are equal on the same machine.
        identity: of the encoder: only vectors of equal identities can be compared.
        dimension: D, the number of components of a stored vector.
        normalized: whether vectors were scaled to length 1 at the end.
        prompt: the instruction before every text; None if there was none.
        probes: (8, P) the encoder's `probes`, not truncated or normalized; None where they are not stored.
    """

    model: str
    method: Mapping[str, Any]
    fingerprint: str
    identity: str
    dimension: int
    normalized: bool
    prompt: str | None
    probes: Array | None

    def to_metadata(self) -> dict[str, str]:
        """The values as strings, by their names."""
        values = {name: getattr(self, name) for name in ("model", "fingerprint", "identity", "prompt")}
        values |= {"method": json.dumps(self.method, ensure_ascii=False), "dimension": str(self.dimension)}
        values["normalized"] = str(self.normalized).lower()
        if self.probes is not None:
            values["probes"] = base64.b64encode(self.probes.astype("<f4").tobytes()).decode()
        return {name: value for name, value in values.items() if value is not None}

    @classmethod
    def from_metadata(cls, values: Mapping[str, str]) -> VectorsInfo:
        """The inverse of `to_metadata`.

        Raises:
            KeyError, ValueError: a value is missing or cannot be read.
        """
        return cls(
            values["model"], json.loads(values["method"]), values["fingerprint"], values["identity"],
            int(values["dimension"]), values["normalized"] == "true", values.get("prompt"),
            np.frombuffer(base64.b64decode(values["probes"], validate=True), "<f4").reshape(8, -1),
        )  # fmt: skip


def to_notes(infos: Mapping[str, VectorsInfo], unknown: int = 0) -> dict[str, str]:
    """The metadata of a file with these columns of vectors and this number of mostly unknown texts."""
    notes = {UNKNOWN: str(unknown)} if unknown else {}
    for column, info in infos.items():
        prefix = PREFIX if len(infos) == 1 else f"{PREFIX}{column}."
        notes |= {f"{prefix}{name}": value for name, value in info.to_metadata().items()}
    return notes


def read_notes(path: Path) -> dict[str, str]:
    """The metadata that Afterword wrote into a .parquet file.

    Raises:
        DataError: it is not a .parquet file.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        metadata = pq.read_schema(path).metadata or {}
    except (pa.ArrowInvalid, OSError) as e:
        raise DataError(f"{path} cannot be read as a .parquet file: {str(e).splitlines()[0]}") from None
    return {k.decode(): v.decode() for k, v in metadata.items() if k.startswith(PREFIX.encode())}


def read_info(path: Path) -> dict[str, VectorsInfo]:
    """What made each column of vectors of a .parquet file, in the order of the columns.

    Raises:
        DataError: it is not a .parquet file, or ``embed`` did not write it.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    notes, infos = read_notes(path), dict[str, VectorsInfo]()
    columns = [field.name for field in pq.read_schema(path) if pa.types.is_fixed_size_list(field.type)]
    for column in columns:
        prefix = PREFIX if f"{PREFIX}identity" in notes else f"{PREFIX}{column}."
        values = {name.removeprefix(prefix): value for name, value in notes.items() if name.startswith(prefix)}
        try:
            infos[column] = VectorsInfo.from_metadata(values)
        except (KeyError, ValueError):
            continue
        if prefix == PREFIX:
            break
    if not infos:
        raise DataError(f"{path} does not say what made its vectors: write it with `afterword embed -o {path.name}`")
    return infos


def holds_vectors(path: Path) -> bool:
    """Whether ``embed`` wrote the path: a .parquet file that says what made its vectors, or the folder of a job."""
    if path.is_dir():
        return (path / JOB).is_file()
    try:
        notes = read_notes(path) if path.suffix.lower() == ".parquet" and path.is_file() else {}
    except DataError:
        return False
    return any(name.endswith("identity") for name in notes)


class _Encoder(Protocol):
    method: Any

    def encode(self, texts: Any, **options: Any) -> Any:
        """Vectors (n, D)."""


def probes(encoder: _Encoder) -> Array:
    """The vectors of the probe texts (8, D), as ``encoder.encode`` computes them; NaN for one without tokens."""
    conditional = any("condition" in method.layout.fields for method in encoder.method.members)
    conditions = ["topic"] * len(PROBE_TEXTS) if conditional else None
    vectors: Array = encoder.encode(list(PROBE_TEXTS), conditions=conditions, on_long="ignore", on_empty="nan")
    return vectors


def probe_difference(stored: Array, found: Array) -> float:
    """The largest difference of two sets of probe vectors (8, D), as a share of a vector's length.

    Infinite if their shapes differ, or if a vector is NaN in one of them only.

    >>> probe_difference(np.array([[3.0, 4.0]]), np.array([[3.0, 4.5]]))
    0.1
    """
    if stored.shape != found.shape:
        return float("inf")
    stored, found = stored.astype(np.float64), found.astype(np.float64)
    missing = np.isnan(stored).any(1)
    if not np.array_equal(missing, np.isnan(found).any(1)):
        return float("inf")
    lengths = np.maximum(np.linalg.norm(stored, axis=1), np.finfo(np.float32).tiny)
    shares = np.abs(stored - found).max(1, initial=0) / lengths
    return float(shares[~missing].max(initial=0))


class StoredVectors:
    """A .parquet file of texts and vectors, or the parts of one. Rows count from 0, through all parts.

    Args:
        path: the file, or the folder of the parts.
        parts: the parts in their order; None = the file alone.
        unknown: the number of texts that are mostly unknown to the model; None = as the file says.

    Raises:
        DataError: ``embed`` did not write it, or not from texts; there is no part, or parts differ in their encoder.

    Attributes:
        infos: what made each column of vectors.
    """

    def __init__(self, path: Path, parts: Sequence[Path] | None = None, unknown: int | None = None) -> None:
        self.path, self.parts = path, [path] if parts is None else list(parts)
        if not self.parts:
            raise DataError(f"{path} holds no vectors yet")
        self.infos: Mapping[str, VectorsInfo] = read_info(self.parts[0])
        identities = {name: info.identity for name, info in self.infos.items()}
        for part in self.parts[1:]:
            if {name: info.identity for name, info in read_info(part).items()} != identities:
                raise DataError(f"{part} and {self.parts[0]} were made by different encoders: embed the texts again")
        self.unknown = int(read_notes(self.parts[0]).get(UNKNOWN, 0)) if unknown is None else unknown
        names = set(_opened(self.parts[0]).schema_arrow.names)
        self._chunks = names >= CHUNK_COLUMNS.keys()
        if TEXT not in names or names >= WORD_COLUMNS.keys():
            raise DataError(f"{path} holds no vectors of texts: it has the columns {', '.join(sorted(names))}")

    def __len__(self) -> int:
        """The number of rows, those without a vector included."""
        return sum(int(_opened(part).metadata.num_rows) for part in self.parts)

    def _batches(self, column: str) -> Iterator[tuple[int, Any]]:
        """The values of a column, batch by batch, each with the number of its first row."""
        start = 0
        for part in self.parts:
            with _opened(part) as file:
                for batch in file.iter_batches(READ, columns=[column]):
                    yield start, batch.column(0)
                    start += batch.num_rows

    @cached_property
    def first(self) -> Rows:
        """(n,) for each row, the first row with the same text and a vector; if none has one, the first row.

        Chunks with equal texts may have different vectors, so each row of a file of chunks is its own first row.
        """
        if self._chunks:
            return np.arange(len(self))
        digests = np.zeros(len(self), [("a", "<u8"), ("b", "<u8")])
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
        """Whether each row has a vector (n,), in every column of vectors or in none."""
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

    return pq.ParquetFile(path, pre_buffer=False)  # which would hold the complete file
