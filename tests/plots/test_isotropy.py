"""Alignment over uniformity."""

from pathlib import Path

from tests.plots.conftest import drawn

from afterword.analysis.isotropy import Isotropy
from afterword.plots.isotropy import draw_isotropy


def test_each_encoder_is_named(tmp_path: Path):
    results = [("a", Isotropy(f"a {m}", 0.1, -2 - i, 0.3 + i, 9, 3)) for i, m in enumerate(("plain", "flow"))]
    draw_isotropy([*results, ("b", Isotropy("b plain", 0.2, -1, 0.1, 9, 3))], tmp_path / "a.svg", "a title")
    assert {"a plain", "a flow", "b plain", "a title"} <= set(drawn(tmp_path / "a.svg"))
