"""Names in figures are whole, literal, and not over each other."""

from itertools import pairwise
from pathlib import Path

import pytest
from tests.plots.conftest import drawn

from afterword.plots.colours import LIGHT
from afterword.plots.figure import figure
from afterword.plots.labels import End, label_ends, length, literal, spread, wrapped

HOSTILE = "a$\\frac{1$ <b>&\x1b[31m\n\u202eb|\ud800"


def test_a_hostile_name_is_drawn_as_it_is(tmp_path: Path):
    with figure(tmp_path / "a.svg", title=HOSTILE, subtitle=HOSTILE) as axes:
        axes.plot([1, 2])
        label_ends(axes, [End(1, 2, HOSTILE, "#e8470f"), End(1, 2, "_second", "#0069a8")], LIGHT)
    shown = "a$\\frac{1$ <b>&\ufffd[31m b|\ufffd"
    assert literal(HOSTILE) == shown
    assert drawn(tmp_path / "a.svg").count(shown) == 3 and "_second" in drawn(tmp_path / "a.svg")


def test_a_long_name_is_cut_and_a_long_title_is_not(tmp_path: Path):
    assert literal("x" * 100) == "x" * 59 + "…"
    words = [f"word{i}" for i in range(30)]
    with figure(tmp_path / "a.svg", title=" ".join(words)) as axes:
        axes.plot([1, 2])
    assert " ".join(t for t in drawn(tmp_path / "a.svg") if "word" in t).split() == words


@pytest.mark.parametrize("text", ["a word " * 9, "w" * 90, "长" * 40, ""])
def test_lines_fit_their_width(text: str):
    lines = wrapped(text, 3.0, 9)
    assert "".join("".join(lines).split()) == "".join(text.split())
    assert all(length(line) <= 3 * 72 / 9 for line in lines)


def test_names_are_a_step_apart_and_in_their_order():
    found = spread([5.0, 5.1, 9.9, 0.0, float(10)], 1.0, 0.0, 10.0)
    order = sorted(range(5), key=lambda i: found[i])
    assert order == [3, 0, 1, 2, 4]
    assert all(found[b] - found[a] >= 1 - 1e-9 for a, b in pairwise(order))
    assert min(found) >= 0 and max(found) <= 10
    assert spread([3.0, 8.0], 1.0, 0.0, 10.0) == [3.0, 8.0]  # with room, each stays where it was
