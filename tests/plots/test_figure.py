"""What is written, what is refused, and that nothing of matplotlib's own state is left changed."""

from pathlib import Path

import pytest

from afterword.errors import InputError
from afterword.plots.figure import check, figure

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
