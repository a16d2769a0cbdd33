"""Stored vectors: what made them, their probe vectors, and reading them again."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError
from ..files.read import TEXT
from . import CHUNK_COLUMNS, JOB, WORD_COLUMNS
from .rows import Array

if TYPE_CHECKING:
    from ..encoder import Encoder

PREFIX = "afterword."
VECTORS = f"{PREFIX}vectors."
"""The prefix of a column of vectors in the metadata of a file."""
REJECTED, UNKNOWN = f"{PREFIX}rejected", f"{PREFIX}unknown"
"""The number of rows of a file without a vector, and of texts that are mostly unknown to the model."""
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

    def to_json(self) -> str:
        """The values as JSON."""
        probes = None if self.probes is None else base64.b64encode(self.probes.astype("<f4").tobytes()).decode()
        return json.dumps({**vars(self), "probes": probes}, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The inverse of `to_json`; raises a KeyError or ValueError if the text is something else."""
        values = json.loads(text)
        if values["probes"] is not None:
            values["probes"] = np.frombuffer(base64.b64decode(values["probes"]), "<f4").reshape(8, -1)
        return cls(**{f.name: values[f.name] for f in fields(cls)})


def to_notes(infos: Mapping[str, VectorsInfo], **counts: int) -> dict[str, str]:
    """The metadata of a file with these columns of vectors, and counts that are not 0."""
    notes = {f"{PREFIX}{name}": str(count) for name, count in counts.items() if count}
    return notes | {f"{VECTORS}{column}": info.to_json() for column, info in infos.items()}


def read_notes(path: Path) -> dict[str, str]:
    """The metadata that Afterword wrote into a .parquet file; a DataError if it is not one."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        metadata = pq.read_schema(path).metadata or {}
    except (pa.ArrowInvalid, OSError) as e:
        raise DataError(f"{path} cannot be read as a .parquet file: {str(e).splitlines()[0]}") from None
    return {k.decode(): v.decode() for k, v in metadata.items() if k.startswith(PREFIX.encode())}


def read_info(path: Path) -> dict[str, VectorsInfo]:
    """What made each column of vectors of a .parquet file; a DataError if ``embed`` did not write it."""
    notes = read_notes(path).items()
    infos = {k.removeprefix(VECTORS): VectorsInfo.from_json(v) for k, v in notes if k.startswith(VECTORS)}
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
    return any(name.startswith(VECTORS) for name in notes)


def probes(encoder: Encoder) -> Array:
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
    lengths = np.maximum(np.linalg.norm(stored.astype(np.float64), axis=1), np.finfo(np.float32).tiny)
    shares = np.abs(stored - found).max(1, initial=0) / lengths
    shares[np.isnan(stored).any(1) & np.isnan(found).any(1)] = 0
    return float(np.nan_to_num(shares, nan=np.inf).max(initial=0))


class StoredVectors:
    """The texts and vectors of a .parquet file, or of the parts of one. Rows count from 0, through all parts.

    Equal texts are one text, but chunks stay apart: their vectors depend on the text around them.

    Args:
        path: the file, or the folder of the parts.
        parts: the parts in their order; None = the file alone.
        unknown: the number of texts that are mostly unknown to the model; None = as the file says.

    Raises:
        DataError: ``embed`` did not write it, or not from texts; or there is no part.

    Attributes:
        infos: what made each column of vectors.
    """

    def __init__(self, path: Path, parts: Sequence[Path] | None = None, unknown: int | None = None) -> None:
        import pyarrow.parquet as pq

        self.path, self.parts = path, [path] if parts is None else list(parts)
        if not self.parts:
            raise DataError(f"{path} holds no vectors yet")
        self.infos: Mapping[str, VectorsInfo] = read_info(self.parts[0])
        self.unknown = int(read_notes(self.parts[0]).get(UNKNOWN, 0)) if unknown is None else unknown
        names = set(pq.read_schema(self.parts[0]).names)
        self._chunks = names >= CHUNK_COLUMNS.keys()
        if TEXT not in names or names >= WORD_COLUMNS.keys():
            raise DataError(f"{path} holds no vectors of texts: it has the columns {', '.join(sorted(names))}")

    def _read(self, column: str) -> Any:
        import pyarrow as pa
        import pyarrow.parquet as pq

        return pa.concat_tables([pq.read_table(part, columns=[column]) for part in self.parts])[column].combine_chunks()

    @cached_property
    def valid(self) -> NDArray[np.bool_]:
        """Whether each row has a vector (n,), in every column of vectors or in none."""
        return np.asarray(self._read(next(iter(self.infos))).is_valid(), bool)

    @cached_property
    def rows(self) -> dict[int, list[int]]:
        """The rows of each text that has a vector, by the first row with one, in ascending order."""
        rows: dict[Any, list[int]] = {}
        for row, text in enumerate(self._read(TEXT).to_pylist()):
            rows.setdefault(row if self._chunks else text, []).append(row)
        first = {next((row for row in same if self.valid[row]), -1): same for same in rows.values()}
        first.pop(-1, None)
        return dict(sorted(first.items()))

    def texts(self) -> list[str]:
        """The k texts of `rows`."""
        found: list[str] = self._read(TEXT).take(list(self.rows)).to_pylist()
        return found

    def vectors(self, column: str) -> Array:
        """The vectors (k, D) of the texts of `rows`."""
        lists = self._read(column).take(list(self.rows))
        return lists.flatten().to_numpy(zero_copy_only=False).reshape(-1, self.infos[column].dimension)  # type: ignore[no-any-return]
