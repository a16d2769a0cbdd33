"""What an analysis found, as a value that can be written down."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Measurement:
    """A frozen value of plain fields."""

    def to_json(self) -> dict[str, Any]:
        """Its fields as JSON knows them: arrays as lists, an undefined number as null."""
        return {f.name: plain(getattr(self, f.name)) for f in fields(self)}


def plain(value: Any) -> Any:
    """A value as JSON knows it.

    >>> plain((1.0, float("nan"), np.float32(0.5)))
    [1.0, None, 0.5]
    """
    if isinstance(value, Measurement):
        return value.to_json()
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
