"""A row to embed, and what is wrong with it."""

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
        line: where it comes from.
        text: None where there is none.
        problem: why it has no vector.
        beside: what belongs to the text: its condition, its word.
    """

    line: int
    text: str | None
    problem: str | None = None
    beside: Any = None


def fault(value: object) -> str | None:
    """Why a value is no text.

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
