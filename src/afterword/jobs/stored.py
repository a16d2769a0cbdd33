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
from . import JOB
from .rows import Array

PREFIX = "afterword."


UNKNOWN = f"{PREFIX}unknown"


@dataclass(frozen=True, eq=False)
class VectorsInfo:
    """What a column of vectors was made by.

    Attributes:
        model: the model, as the command named it.
        method: the method as plain data, from which `methods.serialize.from_json` makes it again.
        fingerprint: of the encoder: with an equal one, vectors are equal on the same machine.
        identity: of the encoder: only vectors of equal identities can be compared.
        dimension: D, the number of components of a stored vector.
        normalized: whether vectors were scaled to length 1 at the end (``--normalize``).
        prompt: the instruction that was put in front of every text; None if there was none.
        probes: (8, P) the encoder's `jobs.probes`, before ``--truncate-dim`` and ``--normalize``;
            None where they are not stored.
    """

    model: str
    method: Mapping[str, Any]
    fingerprint: str
    identity: str
    dimension: int
    normalized: bool
    prompt: str | None
    probes: NDArray[np.floating[Any]] | None

    def to_metadata(self) -> dict[str, str]:
        """The values as strings, by their names."""
        return {
            "model": self.model,
            "method": json.dumps(self.method, ensure_ascii=False),
            "fingerprint": self.fingerprint,
            "identity": self.identity,
            "dimension": str(self.dimension),
            "normalized": str(self.normalized).lower(),
            **({} if self.prompt is None else {"prompt": self.prompt}),
            **(
                {}
                if self.probes is None
                else {"probes": base64.b64encode(self.probes.astype("<f4").tobytes()).decode()}
            ),
        }

    @classmethod
    def from_metadata(cls, values: Mapping[str, str]) -> VectorsInfo:
        """The inverse of `to_metadata`.

        Raises:
            KeyError: a value is missing.
            ValueError: a value cannot be read.
        """
        probes = np.frombuffer(base64.b64decode(values["probes"], validate=True), "<f4").reshape(8, -1)
        method = json.loads(values["method"])
        if not isinstance(method, dict) or values["normalized"] not in {"true", "false"}:
            raise ValueError("method or normalized")
        return cls(
            values["model"], method, values["fingerprint"], values["identity"], int(values["dimension"]),
            values["normalized"] == "true", values.get("prompt"), probes,
        )  # fmt: skip


def to_notes(infos: Mapping[str, VectorsInfo], unknown: int = 0) -> dict[str, str]:
    """The metadata of a file with these columns of vectors, of which so many texts are mostly unknown to the model."""
    counted = {UNKNOWN: str(unknown)} if unknown else {}
    return counted | {
        f"{_prefix(column, len(infos) == 1)}{name}": value
        for column, info in infos.items()
        for name, value in info.to_metadata().items()
    }


def read_unknown(path: Path) -> int:
    """How many texts of a .parquet file are mostly unknown to the model; 0 if the file does not say it."""
    import pyarrow.parquet as pq

    written = (pq.read_schema(path).metadata or {}).get(UNKNOWN.encode(), b"0")
    return int(written) if written.isdigit() else 0


def read_info(path: Path) -> dict[str, VectorsInfo]:
    """What each column of vectors of a .parquet file was made by, in the order of the columns.

    Raises:
        DataError: it is no such file, or was not written by ``embed``.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        schema = pq.read_schema(path)
    except (pa.ArrowInvalid, OSError) as e:
        raise DataError(f"{path} cannot be read as a .parquet file: {str(e).splitlines()[0]}") from None
    notes = {k.decode(): v.decode() for k, v in (schema.metadata or {}).items() if k.startswith(PREFIX.encode())}
    columns = [field.name for field in schema if pa.types.is_fixed_size_list(field.type)]
    only = _prefix("", True) + "identity" in notes
    infos: dict[str, VectorsInfo] = {}
    for column in columns[:1] if only else columns:
        start = _prefix(column, only)
        values = {name.removeprefix(start): value for name, value in notes.items() if name.startswith(start)}
        try:
            infos[column] = VectorsInfo.from_metadata(values)
        except (KeyError, ValueError):
            continue
    if not infos:
        raise DataError(
            f"{path} does not say what its vectors were made by: write it anew, by `afterword embed -o {path.name}`"
        )
    return infos


def _prefix(column: str, only: bool) -> str:
    return PREFIX if only else f"{PREFIX}{column}."


TOLERANCE = 1e-4
"""The largest difference of probe vectors that agree, as a share of their length."""


TEXTS = (
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


class _Embedder(Protocol):
    method: Any

    def encode(self, texts: Any, **options: Any) -> Any:
        """Vectors (n, D)."""


def probes(encoder: _Embedder) -> Array:
    """The vectors of the probe texts (8, D), as ``encoder.encode`` gives them; NaN for one that holds no token.

    >>> from afterword import Encoder
    >>> probes(Encoder.load("afterword-mini")).shape
    (8, 256)
    """
    wanted = any("condition" in method.layout.fields for method in encoder.method.members)
    conditions = ["topic"] * len(TEXTS) if wanted else None
    vectors: Array = encoder.encode(list(TEXTS), conditions=conditions, on_long="ignore", on_empty="nan")
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
    gone, too = np.isnan(stored).any(1), np.isnan(found).any(1)
    if not np.array_equal(gone, too):
        return float("inf")
    lengths = np.maximum(np.linalg.norm(stored, axis=1), np.finfo(np.float32).tiny)
    shares = np.abs(stored - found).max(1, initial=0) / lengths
    return float(shares[~gone].max(initial=0))


def probes_agree(stored: Array, found: Array) -> bool:
    """Whether two sets of probe vectors (8, D) are of encoders whose vectors can be compared."""
    return probe_difference(stored, found) <= TOLERANCE


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
