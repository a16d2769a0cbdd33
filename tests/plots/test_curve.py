"""The curve of scores by layers."""

import math
from dataclasses import replace
from pathlib import Path

from tests.plots.conftest import drawn

from afterword.analysis.turning import Curve, turning_point
from afterword.plots.colours import DARK, LIGHT
from afterword.plots.curve import draw_degradation, finding


def curve(name: str, *scores: float, agreement: float = 0.9) -> Curve:
    point = turning_point(scores)
    point = None if point is None else replace(point, agreement=agreement)
    return Curve(name, scores, 40, point, band=tuple((s - 0.05, s + 0.05) for s in scores))


FALLS, RISES = curve("mean, no template", 0.5, 0.6, 0.55), curve("$last$", 0.4, 0.5, 0.6)
UNDEFINED = Curve("undefined", (math.nan,) * 3, 40, None, "why")


def rings(path: Path) -> list[str]:
    return [part.split("</g>")[0] for part in path.read_text().split('<g id="turning-point">')[1:]]


def test_names_stand_at_the_ends_and_only_a_fall_has_a_ring(tmp_path: Path):
    draw_degradation([FALLS, RISES, UNDEFINED], tmp_path / "a.svg", "a model", subtitle="40 pairs")
    texts = drawn(tmp_path / "a.svg")
    assert {"mean, no template", "$last$", "a model", "40 pairs", "layers kept of 2", "both-ways"} <= set(texts)
    assert "undefined" not in texts
    (ring,) = rings(tmp_path / "a.svg")
    assert LIGHT.series[0] in ring


def test_the_ring_of_a_point_that_few_resamples_share_is_grey(tmp_path: Path):
    draw_degradation([replace(FALLS, turning=replace(FALLS.turning, agreement=0.3))], tmp_path / "a.svg", page=DARK)
    (ring,) = rings(tmp_path / "a.svg")
    assert DARK.muted in ring and DARK.series[0] not in ring


def test_one_pool_in_two_templates_has_one_colour_and_two_dashes(tmp_path: Path):
    draw_degradation([FALLS, RISES], tmp_path / "a.svg", looks=[(1, 0), (1, 1)])
    svg = (tmp_path / "a.svg").read_text()
    assert LIGHT.series[1] in svg and LIGHT.series[0] not in svg and "stroke-dasharray" in svg


def test_layers_of_two_models_and_what_is_found(tmp_path: Path):
    longer = curve("longer", 0.1, 0.2, 0.3, 0.3)
    draw_degradation([RISES, longer], tmp_path / "a.svg")
    assert {"layers kept", "0 of 2 curves fall before the last layer"} <= set(drawn(tmp_path / "a.svg"))
    assert finding([FALLS]) == "scores fall after 1 of 2 layers" and finding([RISES]) == "scores do not fall at the end"
    unsure = curve("unsure", 0.5, 0.6, 0.55, agreement=0.26)
    assert finding([unsure]) == "scores fall after 1 of 2 layers, as in only 26% of the resamples"
    told = "2 of 2 curves fall before the last layer, 1 of them without the agreement of half of the resamples"
    assert finding([unsure, FALLS]) == told
    assert finding([UNDEFINED]) == "no turning point: the curve is undefined"
