"""Results as JSON."""

import json
import math
from dataclasses import dataclass

import numpy as np

from afterword.analysis.result import Measurement


@dataclass(frozen=True)
class Inner(Measurement):
    score: float


@dataclass(frozen=True)
class Outer(Measurement):
    values: np.ndarray
    inner: Inner
    by_name: dict[str, tuple[float, ...]]
    text: str = "a"


def test_what_is_undefined_is_null_and_values_lie_inside_each_other():
    found = Outer(np.array([1.5, math.nan]), Inner(math.nan), {"x": (1.0, math.inf)}).to_json()
    assert found == {"values": [1.5, None], "inner": {"score": None}, "by_name": {"x": [1.0, None]}, "text": "a"}
    assert json.loads(json.dumps(found, allow_nan=False)) == found
