"""Warnings and log messages: one line each."""

import logging
import warnings

import pytest

from afterword.cli.heard import heard, say
from afterword.errors import TextsCut


def test_warnings_and_notes_are_one_line_each(capsys: pytest.CaptureFixture[str]):
    before = warnings.showwarning
    with heard():
        warnings.warn("two\nlines", stacklevel=1)
        warnings.warn("two\nlines", stacklevel=1)
        warnings.warn("not for users", DeprecationWarning, stacklevel=1)
        logging.getLogger("afterword.files.write_encoder").warning("%s was chosen", "this")
    assert capsys.readouterr().err == "warning: two lines\nwarning: this was chosen\n"
    assert warnings.showwarning is before and not logging.getLogger("afterword").handlers


def test_texts_that_were_cut_are_summed_up(capsys: pytest.CaptureFixture[str]):
    with heard():
        for _ in range(2):  # the same message twice is two windows, not one
            warnings.warn(TextsCut([3, 5, 100], 10, 16), stacklevel=1)
        assert capsys.readouterr().err == ""
    told = "warning: 6 texts were cut to 16 tokens: they lost 5 tokens in the middle, 100 at most\n"
    assert capsys.readouterr().err == told


def test_they_are_told_after_an_error_too(capsys: pytest.CaptureFixture[str]):
    def broken() -> None:
        with heard():
            warnings.warn(TextsCut([3], 1, 16), stacklevel=1)
            raise KeyError

    with pytest.raises(KeyError):
        broken()
    assert "1 texts were cut" in capsys.readouterr().err


def test_a_line_is_one_line(capsys: pytest.CaptureFixture[str]):
    say("a\n  b\tc")
    assert capsys.readouterr().err == "a b c\n"
