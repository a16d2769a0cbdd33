"""Texts as they were handed in, each different one once: equal texts have equal vectors, and are embedded once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import InputError
from .layout import Text


def one_each(conditions: Sequence[str], texts: Sequence[Text]) -> Sequence[str]:
    """The conditions, if there are as many as texts.

    Raises:
        InputError: there are not.
    """
    if len(conditions) != len(texts):
        raise InputError(f"{len(conditions)} conditions for {len(texts)} texts: give one per text")
    return conditions


@dataclass(frozen=True)
class Distinct:
    """Texts as they were handed in, each different one once.

    Attributes:
        texts: the different ones, in the order in which each comes first.
        conditions: of each, where there are conditions; a text under two conditions is there twice.
        rows: of each, where it stands among those handed in.
        numbers: what each of those handed in is called in a message; None = as it stands.
    """

    texts: Sequence[Text]
    conditions: Sequence[str] | None
    rows: Sequence[Sequence[int]]
    numbers: Sequence[int] | None = None

    @classmethod
    def from_texts(
        cls, texts: Sequence[Text], conditions: Sequence[str] | None = None, numbers: Sequence[int] | None = None
    ) -> Distinct:
        """Texts by their strings or token ids, and by their conditions.

        >>> Distinct.from_texts(["a", "b", "a"]).rows
        [[0, 2], [1]]
        """
        keys: list[object] = [text if isinstance(text, str) else tuple(text) for text in texts]
        if conditions is not None:
            keys = list(zip(keys, one_each(conditions, texts), strict=True))
        rows: dict[object, list[int]] = {}
        for i, key in enumerate(keys):
            rows.setdefault(key, []).append(i)
        firsts = [found[0] for found in rows.values()]
        paired = None if conditions is None else [conditions[i] for i in firsts]
        return cls([texts[i] for i in firsts], paired, list(rows.values()), numbers)

    @property
    def total(self) -> int:
        """How many were handed in."""
        return sum(map(len, self.rows))

    def some(self, window: slice) -> Distinct:
        """Some of them."""
        conditions = None if self.conditions is None else self.conditions[window]
        return Distinct(self.texts[window], conditions, self.rows[window], self.numbers)

    def where(self, indices: Sequence[int]) -> list[int]:
        """The rows of some texts, those of equal ones next to each other."""
        return [row for i in indices for row in self.rows[i]]

    @property
    def named(self) -> Sequence[Sequence[int]]:
        """Of each, what it is called in a message."""
        numbers = self.numbers
        return self.rows if numbers is None else [[numbers[row] for row in rows] for rows in self.rows]
