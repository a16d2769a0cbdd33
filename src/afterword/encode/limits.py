"""Limits on texts and batches, and what to do with texts that exceed them."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch

from ..errors import InputError, TextsCut, TextsUnknown, TooLong, warn
from ..text.segments import TokenizedText
from .batches import TOKENS, Budget

OnEmpty = Literal["error", "nan"]
OnLong = Literal["warn", "error", "ignore"]


def count(name: str, value: object) -> int | None:
    """Validate an argument that is None or a whole number of at least 1, also one of numpy.

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
    """Limits on texts and batches, and what to do with texts that exceed them.

    Args:
        max_length: maximum number of tokens of a text, or of one chunk of it.
        batch_size: maximum number of texts in a batch.
        batch_tokens: approximate number of tokens in a batch.
        on_long: a text longer than `max_length` is cut with a warning, refused, or cut without a warning. The last also
            leaves out the warning that texts are mostly tokens that the model's vocabulary lacks.
        on_empty: a text without tokens is refused, or gives NaN.
        show_progress_bar: show a progress bar on stderr; or a function, called with the number of texts that were
            finished since its last call.
    """

    max_length: int | None = None
    batch_size: int | None = None
    batch_tokens: int | None = None
    on_long: OnLong = "warn"
    on_empty: OnEmpty = "error"
    show_progress_bar: bool | Callable[[int], object] = False

    def __post_init__(self) -> None:
        """Validate the values."""
        for name in ("max_length", "batch_size", "batch_tokens"):
            object.__setattr__(self, name, count(name, getattr(self, name)))
        if self.on_long not in ("warn", "error", "ignore"):
            raise InputError(f"on_long={self.on_long!r}: choose warn, error or ignore")
        if isinstance(self.show_progress_bar, str):
            raise InputError(f"show_progress_bar={self.show_progress_bar!r}: give True, False or a function")
        if self.on_empty not in ("error", "nan"):
            raise InputError(f"on_empty={self.on_empty!r}: choose error or nan")

    def tokens(self, device: torch.device) -> int:
        """The number of tokens in a batch."""
        return self.batch_tokens or TOKENS.get(device.type, 8192)

    def budget(self, device: torch.device) -> Budget:
        """The largest batch, at the start of a run."""
        return Budget(self.tokens(device), self.batch_size)


@dataclass
class Losses:
    """What is lost of texts on their way to the model.

    Attributes:
        lost: the number of tokens that each text lost that was cut to the maximum length.
        texts: the number of texts.
        unknown: the number of texts of which half of the tokens or more are unknown.
        unknown_id: the id of the token that stands for what the vocabulary lacks.
    """

    lost: list[int] = field(default_factory=list)
    texts: int = 0
    unknown: int = 0
    unknown_id: int | None = None

    def note(
        self, writings: Sequence[TokenizedText], limits: Limits, rows: Sequence[Sequence[int]] | None = None
    ) -> None:
        """Count the texts that were cut, and those that are mostly unknown.

        Args:
            writings: the tokenized texts.
            limits: say what to do with texts that were cut.
            rows: for each text, its positions among the user's texts, which may repeat it; None = each text once, in
                this order.

        Raises:
            TooLong: a text was cut, under on_long="error".
        """
        self.texts += len(writings) if rows is None else sum(map(len, rows))
        self.note_unknown(writings, rows)
        for i, w in enumerate(writings):
            if w.kept < w.total:
                at = [i] if rows is None else rows[i]
                if limits.on_long == "error":
                    raise TooLong(
                        f"text {at[0]} has {w.total} tokens, max_length={limits.max_length} leaves {w.kept}: "
                        "shorten it, or on_long='warn' cuts it"
                    )
                self.lost += [w.total - w.kept] * len(at)

    def note_unknown(self, writings: Sequence[TokenizedText], rows: Sequence[Sequence[int]] | None = None) -> None:
        """Count the texts that are mostly unknown; arguments as for `note`."""
        if self.unknown_id is not None:
            mostly = (i for i, w in enumerate(writings) if _mostly(self.unknown_id, w))
            self.unknown += sum(1 if rows is None else len(rows[i]) for i in mostly)

    def warn(self, limits: Limits) -> None:
        """Warn once, with the number of texts that were cut; and once, with the number of those mostly unknown."""
        if self.lost and limits.on_long == "warn":
            warn(TextsCut(self.lost, self.texts, limits.max_length))
        if self.unknown and limits.on_long != "ignore":
            warn(TextsUnknown(self.unknown))


def _mostly(token: int, writing: TokenizedText) -> bool:
    """Whether half of a text's tokens or more are this one."""
    first, end = writing.segments[0].copies[0]
    return end > first and 2 * writing.segments[0].ids[first:end].count(token) >= end - first
