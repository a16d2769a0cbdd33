"""A number per attention head."""

import math
from pathlib import Path

import numpy as np
from tests.plots.conftest import drawn

from afterword.plots.colours import LEGIBLE, contrast
from afterword.plots.heads import bounds, cells, draw_heads


def test_each_head_has_its_number_and_two_have_frames(tmp_path: Path):
    table = np.array([[0.11, 0.22, 0.33], [0.44, 0.55, math.nan]])
    draw_heads(table, tmp_path / "a.svg", "a title", subtitle="6 heads", label="score", best=(1, 1), chosen=(0, 0))
    texts = drawn(tmp_path / "a.svg")
    assert {"11", "22", "33", "44", "55", "-", "a title", "6 heads", "score"} <= set(texts)
    frames = (tmp_path / "a.svg").read_text().count("stroke: #000000; stroke-width: 1.8")
    dashed = (tmp_path / "a.svg").read_text().count("stroke-dasharray: 3.6,2.52")
    assert (frames, dashed) == (2, 1)


def test_every_number_can_be_read():
    table = np.linspace(-0.2, 0.9, 1000).reshape(20, 50)
    assert min(contrast(ink, ground) for _, _, _, ground, ink in cells(table)) >= LEGIBLE


def test_one_bad_head_does_not_take_the_scale(tmp_path: Path):
    table = np.linspace(0.4, 0.5, 100).reshape(10, 10)
    table[3, 3] = 0.04
    low, high = bounds(table)
    assert 0.4 <= low < 0.41 and high == 0.5
    draw_heads(table, tmp_path / "a.svg", subtitle="100 heads")
    assert "100 heads; 4 heads have less than 40: one colour" in " ".join(drawn(tmp_path / "a.svg"))
    assert bounds(np.full((2, 2), math.nan)) == (0.0, 1.0)
