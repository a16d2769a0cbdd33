"""An index holds vectors of one encoder, made with one set of options: anything else is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..errors import DataError
from ..files.fingerprint import identity
from ..jobs.stored import TOLERANCE, VectorsInfo, probe_difference, probes
from .index import Index, IndexInfo

OPTIONS = {
    "prompt": "the prompt", "chunking": "--chunk", "late": "--late", "overlap": "--overlap", "id_column": "--id",
    "dimension": "the dimension",
}  # fmt: skip
"""What rows of an index have in common, and the option that sets it."""


def check_encoder(folder: Path, info: VectorsInfo, encoder: Any) -> None:
    """Refuse an encoder whose vectors cannot be compared with stored ones.

    Its identity is compared, and its vectors of the probe texts, which show changed weights and other precisions.
    Another version of a library is accepted.

    Args:
        folder: of the index, or a file of vectors.
        info: what these were made by.
        encoder: an `Encoder`.

    Raises:
        DataError: it is a different encoder.
    """
    difference = probe_difference(info.probes, probes(encoder)) if info.probes is not None else 0.0
    if identity(encoder) == info.identity and difference <= TOLERANCE:
        return
    made, now = info.method.get("name"), encoder.method.name
    if made != now:
        reason = f"by the method {made}, and this encoder has {now}"
    elif difference == float("inf"):
        reason = "and the vectors of this encoder have another length"
    elif difference > TOLERANCE:
        reason = f"and vectors of the same texts by this encoder differ by {difference:.2g}"
    else:
        reason = "and this encoder has other settings"
    raise DataError(f"{folder} was made by {info.model}, {reason}: load the same model and method, or make a new index")


def check_settings(index: Index, now: IndexInfo) -> None:
    """Refuse rows that are made in a different way than those of an index.

    Args:
        index: the index.
        now: what the rows would be made by.

    Raises:
        DataError: a setting differs; the first is named.
    """
    for name, option in OPTIONS.items():
        old, new = getattr(index.info, name), getattr(now, name)
        if old != new:
            raise DataError(
                f"{index.folder} was made with {option} {old or 'not set'}, and now it is {new or 'not set'}: give the "
                "same, or make a new index"
            )
