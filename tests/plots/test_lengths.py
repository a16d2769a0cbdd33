"""Lengths of texts."""

import re
from pathlib import Path

import numpy as np
from tests.plots.conftest import drawn

from afterword.analysis.lengths import Lengths
from afterword.plots.lengths import draw_lengths


def test_each_line_and_limit_is_named(tmp_path: Path):
    results = [Lengths(name, 40, np.array([3, 9, 41])) for name in ("news", "reviews")]
    draw_lengths(results, tmp_path / "a.svg", "a title")
    assert {"news", "reviews", "limit 40", "a title", "tokens of a text"} <= set(drawn(tmp_path / "a.svg"))


def test_a_line_begins_at_0(tmp_path: Path):
    draw_lengths([Lengths("news", None, np.array([3, 3, 9]))], tmp_path / "a.svg")
    texts = drawn(tmp_path / "a.svg")
    assert "5" in texts and not [text for text in texts if "$" in text]  # a short axis too has numbers for ticks
    line = (tmp_path / "a.svg").read_text().split('<g id="shares">')[1].split("</g>")[0]
    points = [(float(x), float(y)) for x, y in re.findall(r"[ML] ([\d.]+) ([\d.]+)", line)]
    (x, low), (same, height) = list(dict.fromkeys(points))[:2]
    assert x == same and low > height and low == max(y for _, y in points)  # y grows downwards
