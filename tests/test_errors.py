"""Warnings name the line of the caller."""

import warnings
from pathlib import Path

import pytest
from tests import less_repetition

from afterword import Encoder, bellm, classical, errors


def test_a_warning_names_the_line_that_has_called_afterword(oracle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(less_repetition, "__name__", "jaxtyping.sampled")  # its frames stand around each checked call
    bert, gpt2 = (str(oracle / "models" / name) for name in ("bert", "gpt2"))
    short, causal = Encoder.load(bert, classical(), max_length=8), Encoder.load(gpt2, classical())
    for call in (
        lambda: short.encode(["long " * 40]),
        lambda: short.encode_query(["long " * 40]),
        lambda: short.encode_words(["long " * 40], [["long"]]),
        lambda: causal.encode_chunks("One. Two.", "sentences"),
        lambda: Encoder.load(bert, bellm()),  # behind an `__init__` that has no file
        lambda: Encoder(causal.backbone, bellm(last=1, pool="last")),
        lambda: errors.warn("mine"),
    ):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            call()
        code = call.__code__
        assert [(one.filename, one.lineno) for one in told] == [(code.co_filename, code.co_firstlineno)]
