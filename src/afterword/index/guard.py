"""Vectors of two encoders are never mixed: an index takes vectors of the encoder that made it alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import DataError
from ..files.fingerprint import identity
from ..jobs.contract import first_difference, spelled
from ..jobs.probes import TOLERANCE, probe_difference, probes
from ..jobs.vectors_info import VectorsInfo
from .index import Index
from .info import IndexInfo


def check_encoder(folder: Path, info: VectorsInfo, encoder: Any) -> None:
    """Refuse an encoder whose vectors cannot be compared with those of an index.

    Its identity is compared first, then the vectors of the probe texts, which also show what no hash can see. Another
    version of a library is no other encoder.

    Args:
        folder: of the index, or a file of vectors.
        info: what these were made by.
        encoder: an `Encoder`.

    Raises:
        DataError: it is another encoder.
    """
    difference = probe_difference(info.probes, probes(encoder)) if info.probes is not None else 0.0
    same = identity(encoder) == info.identity
    if same and difference <= TOLERANCE:
        return
    made, given = info.method.get("name"), encoder.method.name
    if not same and made != given:
        raise DataError(
            f"{folder} was made by {info.model} with the method {made}, and this encoder has {given}: give the same "
            "--method, or index anew"
        )
    how = (
        "its vectors have another length" if difference == float("inf") else f"this encoder differs by {difference:.2g}"
    )
    if not same and difference <= TOLERANCE:
        how = "this encoder has other settings"
    raise DataError(f"{folder} was made by {info.model}; {how}: index anew, or load {info.model} as it was")


SETTINGS = {
    "prompt": "the prompt", "chunking": "--chunk", "late": "--late", "overlap": "--overlap", "id_column": "--id",
    "dimension": "the dimension",
}  # fmt: skip
"""What must stay the same in an index, by the name of its option."""


def check_settings(index: Index, now: IndexInfo, kept: Sequence[str]) -> None:
    """Refuse rows that are made in another way than those of an index.

    Args:
        index: the index.
        now: what the rows would be made by.
        kept: the names of their kept columns.

    Raises:
        DataError: a setting differs; the first is named.
    """
    before = {option: getattr(index.info, name) for name, option in SETTINGS.items()}
    wanted = {option: getattr(now, name) for name, option in SETTINGS.items()}
    found = first_difference({**before, "--keep": index.kept}, {**wanted, "--keep": list(kept)})
    if found is not None:
        option, old, new = found
        raise DataError(
            f"{index.folder} was made with {option} {spelled(old or None)}, and now it is {spelled(new or None)}: give "
            "the same, or make a new index"
        )
