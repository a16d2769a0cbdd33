"""The curve of scores by layers."""

import math
from pathlib import Path

from tests.plots.conftest import drawn

from afterword.analysis.turning import Curve, turning_point
from afterword.plots.curve import draw_degradation


def test_a_curve_is_drawn_with_its_ring(tmp_path: Path):
    turns = Curve("mean, no template", (0.5, 0.6, 0.55), 40, turning_point([0.5, 0.6, 0.55]))
    flat = Curve("last", (math.nan, math.nan, math.nan), 40, None, "why")
    draw_degradation([turns, flat], tmp_path / "a.svg", "a model")
    texts = drawn(tmp_path / "a.svg")
    assert {"mean, no template", "last", "turning point", "a model", "layers kept, all causal"} <= set(texts)
