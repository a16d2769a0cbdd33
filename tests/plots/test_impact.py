"""The impact matrix of one text."""

from pathlib import Path

import numpy as np
from tests.plots.conftest import drawn

from afterword.analysis.impact import Impact
from afterword.plots.colours import LIGHT
from afterword.plots.impact import draw_impact, finding

MATRIX = np.array([[0, 0, 0, 0], [0, 0, 3.0, 0], [0, 1.0, 0, 0], [0, 0, 0, 0]])


def test_the_content_tokens_are_named_with_their_means(tmp_path: Path):
    result = Impact(("[CLS]", "银", "$b", "[SEP]"), (1, 3), MATRIX)
    draw_impact(result, tmp_path / "a.svg", subtitle="a text")
    texts = drawn(tmp_path / "a.svg")
    assert texts.count("银") == texts.count("$b") == 2 and not {"[CLS]", "[SEP]"} & set(texts)
    assert {"“$b” has the largest effect on the other tokens", "a text", "of hiding ...", "effect on ..."} <= set(texts)
    assert (tmp_path / "a.svg").read_text().count(f"fill: {LIGHT.series[0]}") == 2  # a bar per column


def test_the_scale_of_few_tokens_reaches_the_lowest_cell(tmp_path: Path):
    result = Impact(("a", "b", "c"), (0, 3), np.array([[0, 20.0, 30], [40, 0, 50], [60, 70, 0]]))
    draw_impact(result, tmp_path / "a.svg")
    texts = drawn(tmp_path / "a.svg")
    scale = texts[texts.index("effect on ...") + 1 :]
    assert scale[0] == "20"


def test_one_token_alone(tmp_path: Path):
    result = Impact(("[CLS]", "a", "[SEP]"), (1, 2), np.zeros((3, 3)))
    draw_impact(result, tmp_path / "a.svg", "a title")
    assert "a title" in drawn(tmp_path / "a.svg") and "stands alone" in finding(result)


def test_many_tokens_stay_on_a_page(tmp_path: Path):
    draw_impact(Impact(("a",) * 80, (0, 80), np.ones((80, 80))), tmp_path / "a.svg")
    head = (tmp_path / "a.svg").read_text().split("viewBox")[0]
    assert float(head.split('width="')[1].split("pt")[0]) < 72 * 14
