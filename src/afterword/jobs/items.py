"""A row to embed, and the reason why it cannot be embedded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..errors import InputError
from ..files.lines import kind_of
from ..text.tokenizer import check_text


@dataclass(slots=True)
class Item:
    """A row to embed.

    Attributes:
        line: its line in the input.
        text: the text; None if there is none.
        problem: why it has no vector; None if it has one.
        beside: a value that belongs to the text, such as its condition or its word.
    """

    line: int
    text: str | None
    problem: str | None = None
    beside: Any = None


def fault(value: object) -> str | None:
    """Why a value cannot be embedded as a text; None if it can.

    >>> fault("fine"), fault(" "), fault(5)
    (None, 'is blank', 'is not a string but a number')
    """
    if not isinstance(value, str):
        kind = kind_of(value)
        return "is null" if kind == "null" else f"is not a string but {'an' if kind[0] in 'ao' else 'a'} {kind}"
    if not value.strip():
        return "is blank" if value else "is empty"
    try:
        check_text(value, "it")
    except InputError as e:
        return str(e).removeprefix("it ")
    return None
