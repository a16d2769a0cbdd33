"""The placeholder of a template, ``<PST>``: a token that takes over a state while the model runs (Token Prepending)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ..errors import InputError, MethodError
from .segments import Span
from .tokenizer import Tokenizer

PLACEHOLDER = "<PST>"


class Placeholder(str):
    """A placeholder as a tokenizer gets it: as its own token ``<PST>``, or as a star, which every vocabulary has."""


def with_placeholders(parts: list[str | None], tokenizer: Tokenizer) -> list[str | None]:
    """The literals of a template, None for each copy of the text, with each placeholder as a part of its own."""
    if not any(p and PLACEHOLDER in p for p in parts):
        return parts
    own = tokenizer.hf.convert_tokens_to_ids(PLACEHOLDER)
    written = Placeholder(PLACEHOLDER if own is not None and tokenizer.tokens([own]) == [PLACEHOLDER] else "*")
    pieces = [piece for p in parts for piece in ([None] if p is None else re.split(f"({PLACEHOLDER})", p))]
    return [written if piece == PLACEHOLDER else piece for piece in pieces if piece != ""]


def placed(tokens: Iterable[Span], copies: Sequence[Span], end: int) -> tuple[int, ...]:
    """The index of each placeholder's token: the last of its span of tokens, in an input of so many tokens.

    Raises:
        MethodError: it is no token of its own.
        InputError: it was cut off.
    """
    spans = list(tokens)
    if any(first == stop or any(a < stop <= b for a, b in copies) for first, stop in spans):
        raise MethodError(f"{PLACEHOLDER} is no token of its own: write a blank between it and {{text}}")
    if any(stop > end for _, stop in spans):
        raise InputError(f"the template's {PLACEHOLDER} was cut off: raise max_length=")
    return tuple(stop - 1 for _, stop in spans)
