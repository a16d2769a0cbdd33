"""Scores by task: every score a mark and a number, every name whole."""

import re
from pathlib import Path

import pytest
from tests.plots.conftest import drawn

from afterword.plots.colours import DARK, LIGHT, Page
from afterword.plots.finding import Series
from afterword.plots.labels import length
from afterword.plots.scores import draw_scores

LONG = "reba:copies=2,pool=mean,attention=last_layer+whiten:dimensions=256"  # 66 letters


def test_each_score_is_a_mark_and_a_number(tmp_path: Path):
    series = [
        Series("ours", (70.0, None, 75.0), group="evaluated here"),
        Series("GloVe", (55.0, 60.0, 65.0), (0.5, None, None), published=True, group="published"),
    ]
    draw_scores(("STS12", "STS13", "Avg."), series, tmp_path / "a.svg", subtitle="cosine_spearman × 100")
    texts = drawn(tmp_path / "a.svg")
    for told in (
        "ours",
        "GloVe",
        "STS13",
        "cosine_spearman × 100",
        "70.00",
        "55.00 ±0.50",
        "evaluated here",
        "published",
    ):
        assert told in texts
    assert "ours leads by 10.00 in Avg.: 75.00, GloVe 65.00" in " ".join(texts)
    assert {"70.00", "55.00 ±0.50", "60.00", "75.00", "65.00"} <= set(texts)
    styles = re.findall(r'<use [^>]*style="([^"]*)"', (tmp_path / "a.svg").read_text())
    assert len([s for s in styles if f"fill: {LIGHT.series[0]}" in s]) == 2  # ours are filled, the paper's are hollow
    assert len([s for s in styles if f"fill: {LIGHT.ground}" in s and f"stroke: {LIGHT.muted}" in s]) == 3


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (12, 2), (2, 17)])
def test_names_are_whole_and_inside_the_picture(tmp_path: Path, rows: int, columns: int):
    series = [Series(f"{LONG} {i}", tuple(60.0 + i + k for k in range(columns))) for i in range(rows)]
    names = [f"task-{k}" for k in range(columns)]
    draw_scores(names, series, tmp_path / "a.svg")
    texts = drawn(tmp_path / "a.svg")
    together = "".join(texts).replace(" ", "")
    assert all(f"{LONG}{i}" in together for i in range(rows)) and set(names) <= set(texts)
    svg = (tmp_path / "a.svg").read_text()
    (width,) = map(float, re.findall(r'<svg [^>]*width="([\d.]+)pt"', svg))
    ends = re.findall(r'font-size: (\d)px[^>]*text-anchor: end[^>]* x="([-\d.]+)"[^>]*>([^<]+)<', svg)
    assert len(ends) >= rows * columns  # the names and the numbers, which end at x
    assert all(float(x) - 0.9 * int(size) * length(text) >= -1 and float(x) <= width for size, x, text in ends)


def test_a_single_encoder_has_a_line_per_task(tmp_path: Path):
    draw_scores(("STS12", "STSB", "Avg."), [Series("only", (60.0, 70.0, 65.0))], tmp_path / "a.svg")
    texts = drawn(tmp_path / "a.svg")
    assert "only: 65.00 in Avg." in texts and [t for t in texts if t in ("STS12", "STSB", "Avg.")] == [
        "STS12",
        "STSB",
        "Avg.",
    ]


@pytest.mark.parametrize("page", [LIGHT, DARK], ids=["light", "dark"])
def test_bars_from_0_and_scores_of_other_data(tmp_path: Path, page: Page):
    series = [Series("a", (40.0,), group="A", marked=frozenset({0})), Series("b", (50.0,), (2.0,), group="B")]
    draw_scores(("SLPWC",), series, tmp_path / "a.svg", bars=True, page=page)
    svg, texts = (tmp_path / "a.svg").read_text(), drawn(tmp_path / "a.svg")
    assert "40.00*" in texts and "50.00 ±2.00" in texts and "0" in texts
    assert page.series[0] in svg and page.series[1] in svg and "pattern" in svg
    draw_scores(("SLPWC",), series, tmp_path / "b.svg", page=page)
    assert "pattern" not in (tmp_path / "b.svg").read_text()


def test_hostile_names_are_drawn_as_they_are(tmp_path: Path):
    draw_scores(("$x$|<b>",), [Series("a\n\x1b[31m$\\frac{$", (1.0,)), Series("b", (2.0,))], tmp_path / "a.svg")
    texts = drawn(tmp_path / "a.svg")
    assert "$x$|<b>" in texts and any(t.startswith("a ") and "$\\frac{$" in t for t in texts)
