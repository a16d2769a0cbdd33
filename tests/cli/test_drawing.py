"""``--plot`` and ``--dark``: what cannot be drawn is refused before anything is computed."""

from pathlib import Path

import pytest
import typer

from afterword.cli.drawing import check_plot
from afterword.errors import DataError


def test_dark_needs_plot():
    with pytest.raises(typer.BadParameter):
        check_plot(None, dark=True)


def test_a_folder_with_the_name_of_the_dark_figure_is_refused(tmp_path: Path):
    (tmp_path / "a-dark.svg").mkdir()
    check_plot(tmp_path / "a.svg")
    with pytest.raises(DataError, match=r"a-dark\.svg"):
        check_plot(tmp_path / "a.svg", dark=True)
