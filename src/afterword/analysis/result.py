"""The base class of analysis results: dataclasses that convert to JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Measurement:
    """The result of an analysis: a frozen dataclass."""

    def to_json(self) -> dict[str, Any]:
        """The fields as plain data for JSON: arrays as lists, NaN and infinity as null."""
        return {f.name: plain(getattr(self, f.name)) for f in fields(self)}


def plain(value: Any) -> Any:
    """A value as plain data for JSON.

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
