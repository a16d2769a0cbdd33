"""What a user may hand in as texts and words, checked before anything runs."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from .errors import InputError
from .layout import Layout, Text
from .tokens import check_text
from .words import Word


def check_texts(texts: object) -> list[Text]:
    """Texts as a list of strings and lists of token ids.

    Raises:
        InputError: one cannot be used; the message names it.

    >>> check_texts(["a", [1, 2]])
    ['a', [1, 2]]
    """
    if isinstance(texts, str | bytes) or not hasattr(texts, "__iter__"):
        raise InputError(f"texts is a {type(texts).__name__}, {texts!r:.60}: give a list of strings")
    found = list(texts)
    if found and all(isinstance(t, numbers.Integral) for t in found):
        raise InputError(f"{found!r:.60} is a list of numbers: one text of token ids is written [{found!r:.60}]")
    return [_text(t, i) for i, t in enumerate(found)]


def _text(text: Any, i: int) -> Text:
    if isinstance(text, str):
        return check_text(text, f"text {i}")
    if hasattr(text, "tolist"):
        text = text.tolist()
    if isinstance(text, list | tuple) and all(isinstance(t, numbers.Integral) and int(t) >= 0 for t in text):
        return [int(t) for t in text]
    check_text(text, f"text {i}")
    raise AssertionError("unreachable")


def check_ids(texts: Sequence[Text], vocabulary: int) -> None:
    """Whether token ids are in the vocabulary.

    Raises:
        InputError: one is not.
    """
    for i, text in enumerate(texts):
        if not isinstance(text, str) and text and max(text) >= vocabulary:
            raise InputError(f"text {i} holds token id {max(text)}: the model's vocabulary ends at {vocabulary - 1}")


def with_prompt(layout: Layout, prompt: str | None) -> Layout:
    """The layout with an instruction in front of all.

    >>> with_prompt(Layout(), "query: ").template
    'query: {text}'
    """
    if not prompt:
        return layout
    escaped = prompt.replace("{", "{{").replace("}", "}}")
    return replace(layout, template=escaped + (layout.template or "{text}"))


def words_by_text(words: object, texts: Sequence[Text], single: bool) -> tuple[list[list[Word]], bool]:
    """The words of each text, and whether each text has exactly one that was not given in a list.

    Raises:
        InputError: as many words as texts are needed.
    """
    if isinstance(words, str) or not isinstance(words, Sequence):
        if single:
            return [[words]], False  # type: ignore[list-item]
        raise InputError(f"words is {words!r:.60}: give one word, or a list of words, per text")
    if single:
        return [list(words)], False
    if len(words) != len(texts):
        raise InputError(f"{len(words)} words for {len(texts)} texts: give one word, or a list of words, per text")
    one_each = not any(isinstance(w, list) for w in words)
    return [[w] if not isinstance(w, list) else w for w in words], one_each
