"""What is written, what is refused, and that nothing of matplotlib's own state is left changed."""

import warnings
from pathlib import Path

import pytest
from tests.plots.conftest import drawn

from afterword.errors import InputError
from afterword.plots.colours import DARK, LIGHT
from afterword.plots.figure import HAN, check, figure, look, pages

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


def test_characters_that_no_font_has_are_told_once(tmp_path: Path):
    private = "\ue000\ue001" * 3  # no font has them
    with pytest.warns(UserWarning, match="no font here has 2") as told, figure(tmp_path / "a.png", title="a") as axes:
        axes.set(xlabel=private, ylabel=private)
    (one,) = told
    assert "a.png: no font here has 2 of its characters (\ue000\ue001), which are drawn as boxes" in str(one.message)


def test_letters_of_an_svg_are_text_whatever_fonts_are_here(tmp_path: Path, recwarn: pytest.WarningsRecorder):
    with figure(tmp_path / "a.svg") as axes:
        axes.set(xlabel="\ue000 银行")
    assert "\ue000 银行" in drawn(tmp_path / "a.svg") and "sans-serif" in (tmp_path / "a.svg").read_text()
    assert not recwarn.list


def test_a_figure_has_a_dark_one_beside_it(tmp_path: Path):
    assert pages(tmp_path / "a.svg", dark=False) == [(tmp_path / "a.svg", LIGHT)]
    for path, page in pages(tmp_path / "a.svg", dark=True):
        with figure(path, page=page) as axes:
            axes.plot([1, 2], **look(page, 0))
    light, dark = ((tmp_path / name).read_text() for name in ("a.svg", "a-dark.svg"))
    assert LIGHT.series[0] in light and DARK.series[0] in dark and DARK.ground in dark and DARK.ground not in light


def test_56_series_look_different():
    assert len({tuple(look(LIGHT, i).values()) for i in range(56)}) == 56


def test_a_figure_that_fails_leaves_the_old_one(tmp_path: Path):
    (tmp_path / "a.svg").write_text("old")
    with pytest.raises(ZeroDivisionError), figure(tmp_path / "a.svg"):
        _ = 1 / 0
    assert [p.name for p in tmp_path.iterdir()] == ["a.svg"] and (tmp_path / "a.svg").read_text() == "old"


def test_a_font_that_was_installed_after_matplotlib_looked_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from matplotlib import font_manager, get_data_path

    own = Path(get_data_path()) / "fonts" / "ttf" / "DejaVuSansMono.ttf"
    (tmp_path / "no.ttf").write_text("no font")
    named = [font for font in font_manager.fontManager.ttflist if font.name not in (*HAN, "DejaVu Sans Mono")]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", named)
    monkeypatch.setattr(font_manager, "findSystemFonts", lambda: [str(own), str(tmp_path / "no.ttf")])
    monkeypatch.setattr("afterword.plots.figure.HAN", ("DejaVu Sans Mono",))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with figure(tmp_path / "a.png", title="a") as axes:
            axes.plot([1, 2])
    assert "DejaVu Sans Mono" in {font.name for font in font_manager.fontManager.ttflist}
