"""Wide tables on a terminal; Markdown stays whole elsewhere."""

import pytest

from afterword.cli.lay_tables import laid_out
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
