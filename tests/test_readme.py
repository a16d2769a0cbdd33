"""README shows what its commands print."""

import pytest
from scripts.generate_readme import PAGE, alike, commands, difference, here, renewed, shortened


@pytest.mark.slow
def test_the_page_shows_what_its_commands_print():
    page = PAGE.read_text("utf-8")
    now = renewed(page, here)
    assert now == page, f"run scripts/generate_readme.py:\n{difference(page, now)}"


def test_a_changed_line_is_noticed():
    page = "x\n```console\n$ afterword methods ditto\nDitto\n...\n```\ny\n"
    now = renewed(page, lambda arguments: "Echo  \nmore\n")
    assert now == page.replace("Ditto\n", "Echo\n") and "-Ditto" in difference(page, now)
    assert renewed(now, lambda arguments: "Echo\nless\n") == now


def test_the_last_digit_may_differ_and_no_more():
    assert alike("0.120 a\n", "0.121 a\n") and alike("0.120 a\n", "0.119 a\n")
    assert not alike("0.120 a\n", "0.122 a\n") and not alike("0.120 a\n", "0.120 b\n")
    assert not alike("0.120 a\n", "0.120 a\nb\n") and not alike("3 rows\n", "4 rows\n")


def test_lines_left_out_are_left_out_again():
    shown = "head 1\n...\nfound: x\n...\nlast\n"
    text = "head 2\nother\nfound: y\nother\nmore\nlast 2\n"
    assert shortened(text, shown) == "head 2\n...\nfound: y\n...\nlast 2\n"
    assert list(commands("$ afterword a \\\n    b\n1\n2\n$ afterword c\n")) == [
        ("afterword a \\\n    b", "1\n2\n"),
        ("afterword c", ""),
    ]
