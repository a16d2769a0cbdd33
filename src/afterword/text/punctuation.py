"""Punctuation that the authors' released code changes in a text before it goes into a prompt."""

from __future__ import annotations

from typing import Literal

Punctuate = Literal["stop", "all"]


def punctuated(text: str, how: Punctuate) -> str:
    """The text with the authors' punctuation.

    Args:
        text: may be empty, and is then returned as it is.
        how: "stop" adds a full stop where the text does not end with one of ``. ? " '`` (kongds/Prompt-BERT,
            evaluation.py:193-202); "all" also replaces ``"`` by ``'`` and a final question mark by a full stop
            (kongds/scaling_sentemb, evaluation.py:191-223).

    >>> punctuated('Is it a "bank"?', "all")
    "Is it a 'bank'."
    """
    if not text:
        return text
    text = text if text[-1] in ".?\"'" else text + "."
    if how == "stop":
        return text
    text = text.replace('"', "'")
    return text[:-1] + "." if text[-1] == "?" else text
