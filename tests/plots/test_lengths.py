"""Lengths of texts."""

from pathlib import Path

import numpy as np
from tests.plots.conftest import drawn

from afterword.analysis.lengths import Lengths
from afterword.plots.lengths import draw_lengths


def test_each_line_and_limit_is_named(tmp_path: Path):
    results = [Lengths(name, 40, np.array([3, 9, 41])) for name in ("news", "reviews")]
    draw_lengths(results, tmp_path / "a.svg", "a title")
    assert {"news", "reviews", "limit 40", "a title", "tokens of a text"} <= set(drawn(tmp_path / "a.svg"))
