"""How much runs at a time, and what becomes of texts that do not fit."""

from __future__ import annotations

import numbers
import statistics
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch

from .errors import InputError, TooLong
from .writing import Writing

OnEmpty = Literal["error", "nan"]
OnLong = Literal["warn", "error", "ignore"]

TOKENS = {"cpu": 2048, "cuda": 32_768}  # of a batch, by default


def count(name: str, value: object) -> int | None:
    """An argument that is a whole number of at least 1, of any library, or None.

    Raises:
        InputError: it is neither.

    >>> count("batch_size", 3)
    3
    """
    if value is None:
        return None
    if not isinstance(value, numbers.Integral) or isinstance(value, bool) or int(value) < 1:
        raise InputError(f"{name}={value!r}: give a whole number of at least 1")
    return int(value)


@dataclass(frozen=True)
class Limits:
    """How much at a time, and what to do with texts that do not fit.

    Args:
        max_length: tokens of a segment at most.
        batch_size: texts of a forward at most.
        batch_tokens: tokens of a forward, about.
        on_long: a text over `max_length` is cut with a warning, refused, or just cut.
        on_empty: a text without tokens is refused, or gives NaN.
        show_progress_bar: on stderr; or a function that is told how many more texts are done.
    """

    max_length: int | None = None
    batch_size: int | None = None
    batch_tokens: int | None = None
    on_long: OnLong = "warn"
    on_empty: OnEmpty = "error"
    show_progress_bar: bool | Callable[[int], object] = False

    def __post_init__(self) -> None:
        """Refuse what makes no sense."""
        for name in ("max_length", "batch_size", "batch_tokens"):
            object.__setattr__(self, name, count(name, getattr(self, name)))
        if self.on_long not in ("warn", "error", "ignore"):
            raise InputError(f"on_long={self.on_long!r}: choose warn, error or ignore")
        if self.on_empty not in ("error", "nan"):
            raise InputError(f"on_empty={self.on_empty!r}: choose error or nan")

    def tokens(self, device: torch.device) -> int:
        """Tokens of a forward."""
        return self.batch_tokens or TOKENS.get(device.type, 8192)


class TextsCut(UserWarning):
    """Texts were cut: ``lost`` tokens each, out of ``texts`` texts; several warnings can be summed up by these."""

    def __init__(self, lost: Sequence[int], texts: int, max_length: int | None) -> None:
        self.lost, self.texts, self.max_length = lost, texts, max_length
        super().__init__(
            f"{len(lost)} of {texts} texts were cut to max_length={max_length}: they lost "
            f"{statistics.median(lost):.0f} tokens in the middle, {max(lost)} at most"
        )


@dataclass
class Cuts:
    """How many texts were cut, and by how much."""

    lost: list[int] = field(default_factory=list)
    texts: int = 0

    def note(self, writings: Sequence[Writing], limits: Limits, first: int = 0) -> None:
        """Count the texts that were cut.

        Raises:
            TooLong: one was, under on_long="error".
        """
        self.texts += len(writings)
        for i, w in enumerate(writings):
            if w.kept < w.total:
                if limits.on_long == "error":
                    raise TooLong(
                        f"text {first + i} has {w.total} tokens, max_length={limits.max_length} leaves {w.kept}: "
                        "shorten it, or on_long='warn' cuts it"
                    )
                self.lost.append(w.total - w.kept)

    def warn(self, limits: Limits) -> None:
        """Say it once."""
        if self.lost and limits.on_long == "warn":
            warnings.warn(TextsCut(self.lost, self.texts, limits.max_length), stacklevel=4)
