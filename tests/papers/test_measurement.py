"""Results as JSON."""

import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from tests.agreement import close
from tests.tiny import tiny

from afterword import Encoder, bellm, classical, reba
from afterword.encode.limits import Limits
from afterword.errors import InputError, MethodError, TooLong
from afterword.papers.measurement import Measurement, sweep


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


TEXTS = ["ccc", "a", "bb", "dddd", "ee", "the end"]


def test_each_texts_last_state_in_order(tmp_path: Path):
    encoder = Encoder.load(tiny("llama", tmp_path), bellm(2, "last", template=None))
    wanted = encoder.encode(TEXTS)
    for limits in (None, Limits(batch_size=1), Limits(batch_tokens=8)):
        found = sweep(encoder, TEXTS, lambda states: list(states[:, -1].numpy()), limits)
        assert close(np.stack(found), wanted, 1e-5)
    as_ids = encoder.backbone.tokenizer.ids(TEXTS)
    assert close(np.stack(sweep(encoder, as_ids, lambda s: list(s[:, -1].numpy()))), wanted, 1e-5)


def test_what_cannot_be_read(tmp_path: Path):
    encoder = Encoder.load(tiny("llama", tmp_path), classical())
    with pytest.raises(InputError, match="there is no text"):
        sweep(encoder, [], list)
    with pytest.raises(InputError, match="text 1 is blank"):
        sweep(encoder, ["a", "  "], list)
    with pytest.raises(TooLong, match="text 0 has 4 tokens"):
        sweep(encoder, ["abcd"], list, Limits(3, on_long="error"))
    with pytest.raises(MethodError, match="cuts texts into chunks"):
        sweep(Encoder(encoder.backbone, reba(chunk=4)), ["a"], list)
