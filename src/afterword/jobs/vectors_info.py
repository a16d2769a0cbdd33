"""What vectors were made by, as the metadata of a .parquet file: written by ``embed``, read before they are compared.

Each value is a string under ``afterword.NAME``, with the names of `VectorsInfo`; ``afterword.unknown`` counts the texts
that are mostly unknown to the model. With several columns of vectors, the
names are ``afterword.COLUMN.NAME``. ``method`` is JSON, and ``probes`` is base64 of little-endian float32.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError

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
