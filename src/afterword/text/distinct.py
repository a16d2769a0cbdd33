"""Texts without duplicates: equal texts have equal vectors, and are embedded once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import InputError
from .layout import Text


def one_each(conditions: Sequence[str], texts: Sequence[Text]) -> Sequence[str]:
    """Validate that there is one condition per text, and return the conditions.

    Raises:
        InputError: their numbers differ.
    """
    if len(conditions) != len(texts):
        raise InputError(f"{len(conditions)} conditions for {len(texts)} texts: give one per text")
    return conditions


@dataclass(frozen=True)
class Distinct:
    """Texts without duplicates.

    Attributes:
        texts: the different texts, in the order of their first occurrence.
        conditions: one for each of them, or None; a text with two conditions counts as two texts.
        rows: for each of them, its indices among the caller's texts.
        numbers: for each of the caller's texts, its number in messages; None = its index.
    """

    texts: Sequence[Text]
    conditions: Sequence[str] | None
    rows: Sequence[Sequence[int]]
    numbers: Sequence[int] | None = None

    @classmethod
    def from_texts(
        cls, texts: Sequence[Text], conditions: Sequence[str] | None = None, numbers: Sequence[int] | None = None
    ) -> Distinct:
        """Find duplicates by strings or token ids, and by conditions.

        >>> Distinct.from_texts(["a", "b", "a"]).rows
        [[0, 2], [1]]
        """
        keys: list[object] = [text if isinstance(text, str) else tuple(text) for text in texts]
        if conditions is not None:
            keys = list(zip(keys, one_each(conditions, texts), strict=True))
        rows: dict[object, list[int]] = {}
        for i, key in enumerate(keys):
            rows.setdefault(key, []).append(i)
        firsts = [indices[0] for indices in rows.values()]
        paired = None if conditions is None else [conditions[i] for i in firsts]
        return cls([texts[i] for i in firsts], paired, list(rows.values()), numbers)

    @property
    def total(self) -> int:
        """The number of the caller's texts."""
        return sum(map(len, self.rows))

    def some(self, window: slice) -> Distinct:
        """A slice of the different texts."""
        conditions = None if self.conditions is None else self.conditions[window]
        return Distinct(self.texts[window], conditions, self.rows[window], self.numbers)

    def where(self, indices: Sequence[int]) -> list[int]:
        """The caller's indices of some of the different texts, those of equal texts next to each other."""
        return [row for i in indices for row in self.rows[i]]

    @property
    def named(self) -> Sequence[Sequence[int]]:
        """For each of the different texts, its numbers in messages."""
        numbers = self.numbers
        return self.rows if numbers is None else [[numbers[row] for row in rows] for rows in self.rows]
