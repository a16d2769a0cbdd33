"""Figures: files of each kind, in light and dark, labelled, readable in grey; and what each one shows."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib import style
from matplotlib.colors import to_rgb
from tests.papers.drawn import drawn

from afterword.errors import InputError
from afterword.papers import attention, dependency, importance, isotropy, lengths, turning
from afterword.papers.attention import AttentionMatrix
from afterword.papers.dependency import Dependency
from afterword.papers.figure import (
    DARK,
    LIGHT,
    Series,
    check,
    draw,
    draw_losses,
    plot_scores,
    printable,
    scores_layout,
    text_on,
)
from afterword.papers.importance import Impact
from afterword.papers.isotropy import Isotropy
from afterword.papers.lengths import Lengths
from afterword.papers.turning import Curve, turning_point
from afterword.train.trainer import SCORE

HOSTILE = "a$\\frac{1$ <b>&\x1b[31m\n\u202eb|\ud800"
SHOWN = "a$\\frac{1$ <b>& [31m b|"
TOKENS = ("<s>", "银", "$b")


def curve(*scores: float, name: str = "mean", agreement: float = 0.9) -> Curve:
    point = turning_point(scores)
    band = tuple((s - 0.05, s + 0.05) for s in scores)
    return Curve(name, scores, 40, point and replace(point, agreement=agreement), band=band)


def backward() -> AttentionMatrix:
    layers, won = np.triu(np.full((3, 3), 2)), np.triu(np.arange(1, 10).reshape(3, 3))
    return AttentionMatrix("backward", TOKENS, np.triu(np.full((3, 3), 0.5)), np.ones(3) / 3, layers, won)


BOX = Dependency("before", "last", np.array([0.1, 0.2, 0.3, math.nan]), 0.2, (0.15, 0.2, 0.25), 1)
EMPTY = Dependency(HOSTILE, "first", np.array([math.nan]), math.nan, (math.nan,) * 3, 1)
MATRIX = np.array([[0, 0, 0, 0], [0, 0, 3.0, 0], [0, 1.0, 0, 0], [0, 0, 0, 0]])
TABLE = np.array([[0.11, 0.22, 0.33], [0.44, 0.55, math.nan]])
PLOTS: dict[str, tuple[Callable[..., None], set[str]]] = {
    "attention": (
        partial(attention.plot, views=[backward()]),
        {"backward", "银", "$b", "takes in", "weight", "attention weight", "2-1", "2-9"},
    ),
    "dependency": (
        partial(dependency.plot, results=[BOX, EMPTY]),
        {"before", "last token, mean 0.20", SHOWN, "BERT in the paper"},
    ),
    "heads": (
        partial(importance.plot_heads, scores=TABLE, label="score", best=(1, 1), chosen=(0, 0)),
        {"11", "55", "-", "score", "head", "layer"},
    ),
    "no heads": (partial(importance.plot_heads, scores=TABLE * math.nan, label="score"), {"-"}),
    "impact": (
        partial(importance.plot, result=Impact(("[CLS]", "银", "$b", "[SEP]"), (1, 3), MATRIX)),
        {"银", "$b", "masked token", "effect on", "mean", "Euclidean distance"},
    ),
    "impact of one token": (partial(importance.plot, result=Impact(("[CLS]", "a"), (1, 2), np.zeros((2, 2)))), {"a"}),
    "isotropy": (
        partial(isotropy.plot, results=[Isotropy(name, 0.1, -2, 0.3, 9, 3) for name in ("plain", "flow")]),
        {"plain", "flow", "uniformity: log mean exp(−2 d²)"},
    ),
    "lengths": (
        partial(lengths.plot, results=[Lengths(name, 40, np.array([3, 9, 41])) for name in ("news", "reviews")]),
        {"news", "reviews", "limit 40", "tokens of a text", "100%", "5", "10"},
    ),
    "turning": (
        partial(turning.plot, curves=[curve(0.5, 0.6, 0.55), curve(math.nan, math.nan, name="none")]),
        {"mean", "none", "layers kept", "Spearman's correlation × 100"},
    ),
    "scores": (
        partial(
            plot_scores,
            columns=("STS12", "$x$|<b>"),
            series=[
                Series("ours", (70.0, None), group="here", marked=frozenset({0})),
                Series("GloVe", (55.0, 60.0), (0.5, None), published=True, group="published"),
            ],
        ),
        {"STS12", "$x$|<b>", "here", "published", "ours", "70.00*", "55.00 ±0.50", "60.00"},
    ),
}


@pytest.mark.parametrize("name", PLOTS)
def test_a_figure_is_labelled_in_light_and_dark(tmp_path: Path, name: str):
    plot, labels = PLOTS[name]
    panels = (1, 2) if name == "scores" else (1, 1)
    draw(tmp_path / "a.svg", plot, title=f"T {HOSTILE}", note=HOSTILE, panels=panels, dark=True)
    for file in ("a.svg", "a-dark.svg"):
        texts = drawn(tmp_path / file)
        assert labels | {f"T {SHOWN}", SHOWN} <= set(texts), labels - set(texts)
    light, dark = ((tmp_path / file).read_text() for file in ("a.svg", "a-dark.svg"))
    assert "#0d1117" in dark and "#0d1117" not in light and "sans-serif" in light


@pytest.mark.parametrize(("kind", "start"), [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF")])
def test_a_figure_is_a_file_of_its_kind_and_the_same_each_time(tmp_path: Path, kind: str, start: bytes):
    before = dict(matplotlib.rcParams)
    for name in ("a", "b"):
        draw(tmp_path / f"{name}{kind}", PLOTS["isotropy"][0])
    content = (tmp_path / f"a{kind}").read_bytes()
    assert content.startswith(start) and dict(matplotlib.rcParams) == before
    assert kind == ".pdf" or content == (tmp_path / f"b{kind}").read_bytes()


def test_a_figure_that_fails_leaves_the_old_one(tmp_path: Path):
    (tmp_path / "a.svg").write_text("old")
    with pytest.raises(ZeroDivisionError):
        draw(tmp_path / "a.svg", lambda _: 1 / 0)  # type: ignore[arg-type, return-value]
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("a.svg", "old")]


def test_a_name_that_is_not_of_a_figure_is_refused():
    with pytest.raises(InputError, match=r"fig\.gif"):
        check(Path("fig.gif"))


def test_a_long_title_is_wrapped_and_a_long_name_is_cut(tmp_path: Path):
    words = [f"word{i}" for i in range(30)]
    draw(tmp_path / "a.svg", PLOTS["isotropy"][0], title=" ".join(words))
    lines = [t for t in drawn(tmp_path / "a.svg") if "word" in t]
    assert " ".join(lines).split() == words and len(lines) > 1
    assert printable("x" * 100) == "x" * 59 + "…"


def luminance(colour: str) -> float:
    r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour))
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def contrast(first: str, second: str) -> float:
    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("sheets", [[LIGHT], [LIGHT, DARK]], ids=["light", "dark"])
def test_colours_can_be_seen_texts_read_and_series_told_apart_in_grey(sheets: list[Path]):
    with style.context(sheets):
        now = dict(matplotlib.rcParams)
    ground, cycle = now["axes.facecolor"], list(now["axes.prop_cycle"])
    assert min(contrast(now[key], ground) for key in ("text.color", "axes.labelcolor", "xtick.labelcolor")) >= 7
    assert contrast(now["axes.edgecolor"], ground) >= 4.5 and min(contrast(c["color"], ground) for c in cycle) >= 3
    assert len({one["marker"] for one in cycle}) == len(cycle) == 14  # without any colour


def test_text_is_legible_on_any_grey():
    greys = [f"#{v:02x}{v:02x}{v:02x}" for v in range(256)]
    assert min(contrast(text_on(grey), grey) for grey in greys) >= 4.5


def test_only_a_fall_has_a_ring_and_it_is_grey_where_few_resamples_agree(tmp_path: Path):
    for agreement, colour in ((0.9, "#0069a8"), (0.3, "#59636e")):
        curves = [curve(0.5, 0.6, 0.55, agreement=agreement), curve(0.4, 0.5, 0.6, name="rises")]
        draw(tmp_path / "a.svg", partial(turning.plot, curves=curves))
        (ring,) = (tmp_path / "a.svg").read_text().split('<g id="turning-point">')[1:]
        assert colour in ring.split("</g>")[0]


def test_one_bad_head_does_not_take_the_scale():
    from matplotlib.figure import Figure

    table = np.linspace(0.4, 0.5, 100).reshape(10, 10)
    table[3, 3] = 0.04
    axes = Figure().subplots()
    importance.plot_heads(axes, table, "score")
    low, high = axes.images[0].get_clim()
    assert 40 <= low < 41 and high == 50


def test_losses_and_dev_scores_of_a_run(tmp_path: Path):
    scored = [{SCORE: 0.67, "step": 2}, {SCORE: None, "step": 3}]
    for rows, labels in (
        ([{"loss": 3.0 - i, "step": i + 1} for i in range(3)], {"loss", "step"}),
        ([{"loss": 3.0, "step": 1}, *scored], {"dev score", "Spearman"}),
        ([], {"my run"}),
    ):
        (tmp_path / "loss.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        draw_losses(tmp_path / "loss.jsonl", tmp_path / "a.svg", SCORE, "my run")
        assert labels | {"my run"} <= set(drawn(tmp_path / "a.svg"))
        assert (tmp_path / "a.svg").read_text().count('id="best"') == ("dev score" in labels)


def test_sizes_of_figures_of_scores():
    for columns, panels in ((1, (1, 1)), (8, (1, 8)), (9, (2, 5)), (17, (3, 6))):
        _, found = scores_layout(["task"] * columns, [Series("a", (1.0,) * columns)])
        assert found == panels
