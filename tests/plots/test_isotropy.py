"""Alignment over uniformity."""

from pathlib import Path
from xml.etree import ElementTree

from tests.plots.conftest import drawn

from afterword.analysis.isotropy import Isotropy
from afterword.plots.isotropy import draw_isotropy


def test_each_encoder_is_named(tmp_path: Path):
    results = [("a", Isotropy(f"a {m}", 0.1, -2 - i, 0.3 + i, 9, 3)) for i, m in enumerate(("plain", "flow"))]
    draw_isotropy([*results, ("b", Isotropy("b plain", 0.2, -1, 0.1, 9, 3))], tmp_path / "a.svg", "a title")
    assert {"a plain", "a flow", "b plain", "a title"} <= set(drawn(tmp_path / "a.svg"))


def test_one_model_is_named_and_labels_lie_off_the_arrow(tmp_path: Path):
    results = [("mini", Isotropy(m, 0.1, -2 - i, 0.3, 9, 3)) for i, m in enumerate(("plain", "flow"))]
    draw_isotropy(results, tmp_path / "a.svg")
    assert "mini: flow is the most uniform" in " ".join(drawn(tmp_path / "a.svg"))
    texts = ElementTree.parse(tmp_path / "a.svg").iter("{http://www.w3.org/2000/svg}text")
    anchors = {t.text: t.get("style", "").partition("text-anchor: ")[2].partition(";")[0] for t in texts}
    # the arrow leads to the left: the name at its start stands to the right, and the one at its end to the left
    assert anchors["plain"] in ("", "start") and anchors["flow"] == "end"
