"""The impact matrix of one text."""

from pathlib import Path

import numpy as np
from tests.plots.conftest import drawn

from afterword.analysis.impact import Impact
from afterword.plots.impact import draw_impact


def test_the_content_tokens_are_named(tmp_path: Path):
    result = Impact(("[CLS]", "a", "$b", "[SEP]"), (1, 3), np.ones((4, 4)))
    draw_impact(result, tmp_path / "a.svg", "a title")
    assert {"a", "$b", "a title"} <= set(drawn(tmp_path / "a.svg"))
