"""Validate texts, conditions and words before anything runs, and find duplicates."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..errors import InputError
from .layout import Layout, Text
from .tokenizer import check_text
from .words import Word


def listed(values: object, name: str) -> list[Any]:
    """Convert the argument ``name`` to a list; it may be an array, a Series, a column or a generator.

    Raises:
        InputError: the argument is a single string, a table or a dictionary, or has no order.
    """
    what = f"{name} is a {type(values).__name__}"
    columns = getattr(values, "column_names", getattr(values, "columns", None))
    if columns is not None and not isinstance(values, Sequence):
        raise InputError(f"{what} with the columns {', '.join(map(str, columns))}: pass one of them, as in df['text']")
    if isinstance(values, Mapping | set | frozenset):
        raise InputError(f"{what}, which has no order: pass a list")
    for method in ("to_pylist", "tolist"):
        if hasattr(values, method):
            values = getattr(values, method)()
    if not hasattr(values, "__iter__") or isinstance(values, str | bytes | bytearray | memoryview):
        raise InputError(f"{name} is {values!r:.60}, not a list: pass a list of strings")
    return list(values)


def check_texts(texts: object) -> list[Text]:
    """Validate texts and return them as a list of strings and lists of token ids.

    Raises:
        InputError: a text is not valid; the message gives its number.
    """
    items = listed(texts, "texts")
    if items and all(isinstance(t, numbers.Integral) for t in items):
        raise InputError(f"{items!r:.60} is a list of numbers: to pass a single text as token ids, use [{items!r:.60}]")
    return [_text(t, i) for i, t in enumerate(items)]


def one_or_many(texts: object) -> tuple[list[Text], bool]:
    """Validate texts; return them as a list, and whether a single string was passed."""
    single = isinstance(texts, str)
    return check_texts([texts] if single else texts), single


def _text(text: Any, i: int) -> Text:
    if isinstance(text, str):
        return check_text(text, f"text {i}")
    for method in ("as_py", "tolist"):
        if hasattr(text, method):
            text = getattr(text, method)()
    if isinstance(text, list | tuple) and all(_is_id(t) for t in text):
        return [int(t) for t in text]
    return check_text(text, f"text {i}")


def _is_id(number: object) -> bool:
    return isinstance(number, numbers.Integral) and not isinstance(number, bool) and int(number) >= 0


def check_groups(groups: object) -> list[list[Text]]:
    """Validate groups of texts and return them as lists; no group may be empty."""
    checked = []
    for i, group in enumerate(listed(groups, "groups")):
        try:
            checked.append(refuse_blank(check_texts(group)))
        except InputError as e:
            raise InputError(f"group {i}: {e}") from None
        if not checked[-1]:
            raise InputError(f"group {i} is empty: pass at least one text")
    return checked


def check_conditions(conditions: object, texts: Sequence[Text]) -> list[str] | None:
    """Validate conditions and return them as a list of strings, one per text, or None if there are none."""
    if conditions is None:
        return None
    items = [c.as_py() if hasattr(c, "as_py") else c for c in listed(conditions, "conditions")]
    if len(items) != len(texts):
        raise InputError(f"{len(items)} conditions for {len(texts)} texts: pass one per text")
    return [check_text(c, f"condition {i}", "pass a string") for i, c in enumerate(items)]


def check_ids(texts: Sequence[Text], vocabulary: int) -> None:
    """Validate that all token ids are in the vocabulary; raises InputError."""
    for i, text in enumerate(texts):
        if not isinstance(text, str) and text and max(text) >= vocabulary:
            raise InputError(f"text {i} contains token id {max(text)}: the model's vocabulary ends at {vocabulary - 1}")


def with_prompt(layout: Layout, prompt: str | None) -> Layout:
    """Add a prompt before the layout's template.

    Prompt and text are tokenized as one string, as in sentence-transformers. If the layout repeats the text's ids, it
    repeats the ids that the text has after the prompt.

    Raises:
        InputError: the prompt is not a valid text.
        MethodError: the layout splits texts into chunks, which cannot have a prompt.
    """
    if prompt is None or prompt == "":
        return layout
    check_text(prompt, "the prompt", "pass a string")
    join = layout.join
    if layout.template is None and join != "text":
        join = "first" if layout.copies > 1 else None
    escaped = prompt.replace("{", "{{").replace("}", "}}")
    return replace(layout, template=escaped + (layout.template or "{text}"), join=join)


def words_by_text(words: object, texts: Sequence[Text], single: bool) -> tuple[list[list[Word]], bool]:
    """Return the words of each text, and whether each text's words were a single word instead of a list."""
    pair = isinstance(words, tuple) and len(words) == 2 and isinstance(words[1], numbers.Integral)
    is_word = isinstance(words, str) or pair  # (string, n), or a span (start, end)
    if single:
        return [[words] if is_word else listed(words, "words")], False  # type: ignore[list-item]
    items = [] if is_word else listed(words, "words")
    if is_word or len(items) != len(texts):
        raise InputError(f"words={words!r:.60} for {len(texts)} texts: pass a word, or a list of words, per text")
    items = [w if isinstance(w, str | tuple) or not hasattr(w, "__iter__") else listed(w, "words") for w in items]
    one_each = not any(isinstance(w, list) for w in items)
    return [[w] if not isinstance(w, list) else w for w in items], one_each


def refuse_blank(texts: list[Text]) -> list[Text]:
    """Validate that no text is empty or blank (raises InputError), and return the texts."""
    blank = next((i for i, text in enumerate(texts) if is_blank(text)), None)
    if blank is not None:
        raise InputError(f"text {blank} is blank, {texts[blank]!r:.40}: remove it")
    return texts


def is_blank(text: Text) -> bool:
    """Whether a text has no token ids or consists only of white space."""
    return not text.strip() if isinstance(text, str) else not text


@dataclass(frozen=True)
class Distinct:
    """Distinct texts: equal texts have equal vectors and are embedded once.

    Attributes:
        texts: the distinct texts, in the order of their first occurrence.
        conditions: one per distinct text, or None; a text with two conditions counts as two texts.
        rows: for each distinct text, all its indices in the caller's list.
        numbers: the number in messages of each of the caller's texts; None = its index.
    """

    texts: Sequence[Text]
    conditions: Sequence[str] | None
    rows: Sequence[Sequence[int]]
    numbers: Sequence[int] | None = None

    @classmethod
    def from_texts(
        cls, texts: Sequence[Text], conditions: Sequence[str] | None = None, numbers: Sequence[int] | None = None
    ) -> Distinct:
        """Find the distinct texts; duplicates have equal strings or token ids, and equal conditions."""
        keys: list[object] = [text if isinstance(text, str) else tuple(text) for text in texts]
        if conditions is not None:
            keys = list(zip(keys, conditions, strict=True))
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
        """Return a slice of the distinct texts."""
        conditions = None if self.conditions is None else self.conditions[window]
        return Distinct(self.texts[window], conditions, self.rows[window], self.numbers)

    def where(self, indices: Sequence[int]) -> list[int]:
        """Convert indices of distinct texts to the caller's indices; equal texts are adjacent."""
        return [row for i in indices for row in self.rows[i]]

    @property
    def named(self) -> Sequence[Sequence[int]]:
        """For each distinct text, all its numbers in messages."""
        numbers = self.numbers
        return self.rows if numbers is None else [[numbers[row] for row in rows] for rows in self.rows]
