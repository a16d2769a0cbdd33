"""Scores by task."""

import re
from pathlib import Path

from afterword.plots.scores import Series, draw_scores


def test_each_score_is_a_mark(tmp_path: Path):
    series = [Series("ours", (70.0, None, 75.0)), Series("GloVe", (55.0, 60.0, 65.0), published=True)]
    draw_scores(("STS12", "STS13", "Avg."), series, tmp_path / "a.svg", "a title", "score")
    svg = (tmp_path / "a.svg").read_text()
    for told in ("ours", "GloVe (published)", "STS13", "a title", "score"):
        assert f">{told}<" in svg
    marks = [len(re.findall("<use ", part)) for part in re.split(r'<g id="line2d_', svg)]
    assert sorted(marks)[-2:] == [2, 3]


def test_more_rows_than_marks(tmp_path: Path):
    series = [Series(str(i), (float(i),), published=i % 2 == 0) for i in range(60)]
    draw_scores(("STS12",), series, tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 10_000
