"""A number per attention head."""

from pathlib import Path

import numpy as np
from tests.plots.conftest import drawn

from afterword.plots.heads import draw_heads


def test_each_head_has_its_number(tmp_path: Path):
    draw_heads(np.array([[0.11, 0.22, 0.33], [0.44, 0.55, 0.66]]), tmp_path / "a.svg", "a title")
    texts = drawn(tmp_path / "a.svg")
    assert {"11", "22", "33", "44", "55", "66", "a title"} <= set(texts)
