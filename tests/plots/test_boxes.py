"""A box per model."""

import math
from pathlib import Path

import numpy as np
from tests.plots.conftest import drawn

from afterword.analysis.dependency import Dependency
from afterword.plots.boxes import draw_dependency


def test_a_box_is_drawn_for_each_model_with_its_mean(tmp_path: Path):
    before = Dependency("before", "last", np.array([0.1, 0.2, 0.3, math.nan]), 0.2, (0.15, 0.2, 0.25), 1)
    undefined = Dependency("after bellm", "first", np.array([math.nan]), math.nan, (math.nan,) * 3, 1)
    draw_dependency([before, undefined], tmp_path / "a.svg")
    texts = drawn(tmp_path / "a.svg")
    assert {"before", "(last token)", "after", "bellm", "(first token)", "0.20"} <= set(texts)
