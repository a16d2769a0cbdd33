"""Wide tables on a terminal; Markdown stays whole elsewhere."""

import os

import pytest

from afterword.cli.lay_tables import laid_out, paragraph, terminal
from afterword.tasks.report import aligned

WIDE = [["t", *(f"column-{i}" for i in range(33)), "whose"]] + [
    [f"row {i}", *(f"{i}.{k:02d}" for k in range(33)), f"published, {i}"] for i in range(4)
]


def numbers(text: str) -> list[str]:
    return sorted(word for word in text.replace("|", " ").split() if word[0].isdigit() and "." in word)


@pytest.mark.parametrize("width", [30, 60, 100, 200])
def test_no_line_is_wider_and_no_number_is_lost(width: int):
    text = laid_out(WIDE, width)
    assert max(map(len, text.splitlines())) <= width
    assert numbers(text) == numbers(aligned(WIDE))


def test_a_table_with_more_columns_than_rows_is_transposed():
    assert "| column-32 |" in laid_out(WIDE, 80)


def test_what_fits_or_is_no_terminal_stays_whole(monkeypatch: pytest.MonkeyPatch):
    assert laid_out(WIDE, None) == laid_out(WIDE, 9999) == aligned(WIDE)
    assert terminal() is None
    master, slave = os.openpty()
    with os.fdopen(slave, "w") as screen:
        monkeypatch.setattr("sys.stdout", screen)
        monkeypatch.setenv("COLUMNS", "77")
        assert terminal() == 77
    os.close(master)


def test_a_paragraph_is_one_line_or_fits():
    assert paragraph("a\nb c", None) == "a b c"
    assert paragraph("aaa bbb ccc", 8, "  ") == "aaa bbb\n  ccc"
