"""Figures: what is written, what is refused, and that nothing of matplotlib's own state is left changed."""

import json
import math
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from afterword.analysis.dependency import Dependency
from afterword.analysis.plots import Series, check, draw_degradation, draw_dependency, draw_losses, draw_scores, figure
from afterword.analysis.turning import Curve, turning_point
from afterword.errors import InputError
from afterword.train.callbacks import SCORE

START = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}


@pytest.mark.parametrize("kind", START)
def test_a_figure_is_a_file_of_its_kind(tmp_path: Path, kind: str):
    path = tmp_path / f"line{kind}"
    with figure(path) as axes:
        axes.plot([1, 2, 3])
    assert path.read_bytes().startswith(START[kind])


def test_matplotlib_is_as_it_was_and_a_figure_that_fails_is_not_written(tmp_path: Path):
    import matplotlib

    before = dict(matplotlib.rcParams)
    with pytest.raises(ZeroDivisionError), figure(tmp_path / "a.png"):
        _ = 1 / (matplotlib.rcParams["font.size"] - 9)
    assert dict(matplotlib.rcParams) == before
    assert not list(tmp_path.iterdir())


def test_the_same_drawing_gives_the_same_svg(tmp_path: Path):
    for name in ("a.svg", "b.svg"):
        with figure(tmp_path / name) as axes:
            axes.plot([1, 2], label="x")
            axes.legend()
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_another_kind_of_file_is_refused():
    with pytest.raises(InputError, match=r"fig\.gif is no figure: give a file that ends in \.png, \.svg, \.pdf"):
        check(Path("fig.gif"))


def drawn(path: Path) -> list[str]:
    """The texts of an .svg figure."""
    return [t.text or "" for t in ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}text")]


def test_a_curve_is_drawn_with_its_ring(tmp_path: Path):
    turns = Curve("mean, no template", (0.5, 0.6, 0.55), 40, turning_point([0.5, 0.6, 0.55]))
    flat = Curve("last", (math.nan, math.nan, math.nan), 40, None, "why")
    draw_degradation([turns, flat], tmp_path / "a.svg", "a model")
    texts = drawn(tmp_path / "a.svg")
    assert {"mean, no template", "last", "turning point", "a model", "layers kept, all causal"} <= set(texts)


def test_a_box_is_drawn_for_each_model_with_its_mean(tmp_path: Path):
    before = Dependency("before", "last", np.array([0.1, 0.2, 0.3, math.nan]), 0.2, (0.15, 0.2, 0.25), 1)
    undefined = Dependency("after bellm", "first", np.array([math.nan]), math.nan, (math.nan,) * 3, 1)
    draw_dependency([before, undefined], tmp_path / "a.svg")
    texts = drawn(tmp_path / "a.svg")
    assert {"before", "(last token)", "after", "bellm", "(first token)", "0.20"} <= set(texts)


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


def texts(path: Path) -> str:
    return " ".join("".join(e.itertext()) for e in ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}text"))


def test_losses_and_scores_are_drawn(tmp_path: Path):
    rows = [{"loss": 3.0 - i, "step": i} for i in range(3)]
    (tmp_path / "loss.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    draw_losses(tmp_path / "loss.jsonl", tmp_path / "a.svg", SCORE, "my run")
    assert "my run" in texts(tmp_path / "a.svg") and "dev" not in texts(tmp_path / "a.svg")
    with (tmp_path / "loss.jsonl").open("a") as file:
        file.write(json.dumps({SCORE: 0.6789, "step": 2}) + "\n" + json.dumps({SCORE: 0.7, "step": 3}) + "\n")
    draw_losses(tmp_path / "loss.jsonl", tmp_path / "b.svg", SCORE)
    assert "dev: Spearman" in texts(tmp_path / "b.svg")
