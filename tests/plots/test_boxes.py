"""A box per model."""

import math
from pathlib import Path

import numpy as np
from tests.plots.conftest import drawn

from afterword.analysis.dependency import Dependency
from afterword.plots.boxes import draw_dependency, finding
from afterword.plots.colours import DARK, LIGHT

BEFORE = Dependency("before", "last", np.array([0.1, 0.2, 0.3, math.nan]), 0.2, (0.15, 0.2, 0.25), 1)
AFTER = Dependency("after $x$", "first", np.array([0.5, 0.6]), 0.55, (0.52, 0.55, 0.57), 0)
UNDEFINED = Dependency("none", "first", np.array([math.nan]), math.nan, (math.nan,) * 3, 1)


def test_a_box_is_drawn_for_each_result_with_its_mean(tmp_path: Path):
    draw_dependency([BEFORE, AFTER, UNDEFINED], tmp_path / "a.svg", subtitle="4 sentences")
    texts = " ".join(drawn(tmp_path / "a.svg"))
    for told in ("before", "last token", "after $x$", "first token", "0.20", "0.55", "4 sentences"):
        assert told in texts
    assert "LLaMA in the paper: 0.17" in texts and "BERT in the paper: 0.35" in texts
    assert "The pivot goes with the other tokens by 0.20 (before) to 0.55 (after $x$)" in texts


def test_a_colour_per_model(tmp_path: Path):
    draw_dependency([BEFORE, AFTER], tmp_path / "a.svg", page=DARK)
    draw_dependency([BEFORE, AFTER], tmp_path / "b.svg", colours=[0, 1])
    one, two = ((tmp_path / name).read_text() for name in ("a.svg", "b.svg"))
    assert DARK.series[0] in one and DARK.series[1] not in one
    assert LIGHT.series[0] in two and LIGHT.series[1] in two


def test_what_is_found():
    assert finding([BEFORE]) == "before: the pivot goes with the other tokens by 0.20"
    assert finding([UNDEFINED]) == "no sentence has a second token: there is nothing to correlate"
