"""``--plot`` and ``--dark``: what cannot be drawn is told before anything is computed; the dark figure lies beside."""

from pathlib import Path

import pytest
import typer
from tests.cli.conftest import Run

from afterword.cli.drawing import check_plot, draw_plot
from afterword.errors import DataError
from afterword.plots.colours import DARK, LIGHT, Page


def test_dark_alone_is_one_line(run: Run, llama: Path, dev: Path):
    ended = run("analyse", "dependency", "-m", llama, "--pairs", dev, "--dark")
    assert ended.code == 2 and ended.err.splitlines() == [
        "error: Invalid value for --dark: needs --plot FILE: it draws that figure again"
    ]
    with pytest.raises(typer.BadParameter):
        check_plot(None, dark=True)


def test_a_folder_where_the_dark_figure_would_lie_is_told_first(tmp_path: Path):
    (tmp_path / "a-dark.svg").mkdir()
    check_plot(tmp_path / "a.svg")
    with pytest.raises(DataError, match=r"a-dark\.svg"):
        check_plot(tmp_path / "a.svg", dark=True)


def test_both_are_drawn():
    asked: list[tuple[Path, Page]] = []

    def draw(path: Path, *, page: Page) -> None:
        asked.append((path, page))

    draw_plot(Path("a.svg"), True, draw)
    assert asked == [(Path("a.svg"), LIGHT), (Path("a-dark.svg"), DARK)]
