"""Validate the texts, conditions and words that a user gives, before anything runs."""

from __future__ import annotations

import numbers
from collections.abc import KeysView, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

from ..errors import InputError, MethodError
from .layout import Layout, Text
from .segments import TokenizedText
from .tokenizer import Tokenizer, check_text
from .words import Word


def listed(values: object, name: str) -> list[Any]:
    """Items, one per text, as a list; they may come as a list, an array, a Series, a column or a generator.

    Args:
        values: the items.
        name: of the argument, for an error.

    Raises:
        InputError: they are one string, a table, a dictionary, or have no order.

    >>> listed(("a", "b"), "texts")
    ['a', 'b']
    """
    what = f"{name} is a {type(values).__name__}"
    names = getattr(values, "column_names", getattr(values, "columns", None))
    if names is not None and not isinstance(values, Sequence):
        columns = [str(c) for c in names]
        fix = f"give one of them, as in df[{columns[0]!r}]" if columns else "give a column"
        raise InputError(f"{what} with the columns {', '.join(columns[:8])}: {fix}")
    if isinstance(values, Mapping):
        raise InputError(f"{what} with the keys {', '.join(map(str, list(values)[:8]))}: give one of its values")
    if isinstance(values, Set) and not isinstance(values, KeysView):
        raise InputError(f"{what}, which has no order: give a list, as in sorted({name})")
    if isinstance(values, str | bytes | bytearray | memoryview):
        raise InputError(f"{what}, {values!r:.60}: give a list of strings")
    for method in ("to_pylist", "tolist"):
        if hasattr(values, method):
            values = getattr(values, method)()
    if not hasattr(values, "__iter__") or isinstance(values, str | bytes):
        raise InputError(f"{what}, {values!r:.60}: give a list of strings")
    return list(values)


def check_texts(texts: object) -> list[Text]:
    """Validate texts, and return them as a list of strings and lists of token ids.

    Raises:
        InputError: a text is not valid; the message names it.

    >>> check_texts(["a", [1, 2]])
    ['a', [1, 2]]
    """
    items = listed(texts, "texts")
    if items and all(isinstance(t, numbers.Integral) for t in items):
        raise InputError(f"{items!r:.60} is a list of numbers: one text of token ids is written [{items!r:.60}]")
    return [_text(t, i) for i, t in enumerate(items)]


def check_groups(groups: object) -> list[list[Text]]:
    """Validate groups of texts, and return them as lists, as `check_texts` returns texts.

    Raises:
        InputError: a group is empty or no list, or a text is blank or not valid; the message names both.
    """
    checked = []
    for i, group in enumerate(listed(groups, "groups")):
        try:
            texts = check_texts(group)
        except InputError as e:
            raise InputError(f"group {i}: {e}") from None
        if not texts:
            raise InputError(f"group {i} is empty: give its text at least")
        if blank := [n for n, text in enumerate(texts) if is_blank(text)]:
            raise InputError(f"group {i}: text {blank[0]} is blank, {texts[blank[0]]!r:.40}: leave it out")
        checked.append(texts)
    return checked


def _text(text: Any, i: int) -> Text:
    if isinstance(text, str):
        return check_text(text, f"text {i}")
    for method in ("as_py", "tolist"):
        if hasattr(text, method):
            text = getattr(text, method)()
    if isinstance(text, list | tuple) and all(_natural(t) for t in text):
        return [int(t) for t in text]
    return check_text(text, f"text {i}")


def _natural(number: object) -> bool:
    return isinstance(number, numbers.Integral) and not isinstance(number, bool) and int(number) >= 0


def check_conditions(conditions: object) -> list[str] | None:
    """Validate conditions, and return them as a list of strings, or None if there are none.

    Raises:
        InputError: a condition is not valid; the message names it.

    >>> check_conditions(["colour"])
    ['colour']
    """
    if conditions is None:
        return None
    if isinstance(conditions, str):
        raise InputError(f"conditions is one string, {conditions!r:.60}: give a list with one condition per text")
    items = [c.as_py() if hasattr(c, "as_py") else c for c in listed(conditions, "conditions")]
    return [check_text(c, f"condition {i}", "give a string") for i, c in enumerate(items)]


def check_ids(texts: Sequence[Text], vocabulary: int) -> None:
    """Validate that all token ids are in the vocabulary.

    Raises:
        InputError: one is not.
    """
    for i, text in enumerate(texts):
        if not isinstance(text, str) and text and max(text) >= vocabulary:
            raise InputError(f"text {i} holds token id {max(text)}: the model's vocabulary ends at {vocabulary - 1}")


def check_written(
    tokenized: list[TokenizedText], tokenizer: Tokenizer, vocabulary: int, rows: Sequence[Sequence[int]] | None = None
) -> list[TokenizedText]:
    """Validate that the model has an embedding for every token, and return the texts.

    Raises:
        InputError: a token was added to the tokenizer, but not to the model's input embedding table.
    """
    if tokenizer.top >= vocabulary:
        for i, text in enumerate(tokenized):
            largest = max((max(s.ids, default=0) for s in text.segments), default=0)
            if largest >= vocabulary:
                token, size = tokenizer.tokens([largest])[0], tokenizer.top + 1
                raise InputError(
                    f"text {rows[i][0] if rows else i} holds {token!r}, token {largest}, and the model's table ends at "
                    f"{vocabulary - 1}: call encoder.backbone.model.resize_token_embeddings({size})"
                )
    return tokenized


def with_prompt(layout: Layout, prompt: str | None) -> Layout:
    """The layout with a prompt in front.

    Prompt and text are tokenized as one string, as sentence-transformers does. If a layout repeats the text's ids,
    the copies repeat the ids that the text has behind the prompt.

    >>> with_prompt(Layout(), "query: ").template
    'query: {text}'

    Raises:
        InputError: the prompt is not a valid text.
        MethodError: the layout splits texts into chunks, which take no prompt.
    """
    if prompt is None or prompt == "":
        return layout
    check_text(prompt, "the prompt", "give a string")
    if layout.chunk is not None:
        raise MethodError(f"chunk={layout.chunk} writes a text in pieces, which take no prompt: pass prompt=''")
    join = layout.join
    if layout.template is None and join != "text":
        join = "first" if layout.copies > 1 else None
    escaped = prompt.replace("{", "{{").replace("}", "}}")
    return replace(layout, template=escaped + (layout.template or "{text}"), join=join)


def words_by_text(words: object, texts: Sequence[Text], single: bool) -> tuple[list[list[Word]], bool]:
    """The words of each text, and whether each text has a single word, given without a list.

    Raises:
        InputError: the number of words, or of lists of words, is not that of the texts.
    """
    if single and (isinstance(words, str) or _is_word(words)):
        return [[words]], False  # type: ignore[list-item]
    if isinstance(words, str) or _is_word(words):
        raise InputError(f"words is {words!r:.60}: give one word, or a list of words, per text")
    items = listed(words, "words")
    if single:
        return [items], False
    if len(items) != len(texts):
        raise InputError(f"{len(items)} words for {len(texts)} texts: give one word, or a list of words, per text")
    items = [w if isinstance(w, str | tuple) or not hasattr(w, "__iter__") else listed(w, "words") for w in items]
    one_each = not any(isinstance(w, list) for w in items)
    return [[w] if not isinstance(w, list) else w for w in items], one_each


def _is_word(word: object) -> bool:
    """Whether a value is a tuple that names one word: (string, n), or a span (start, end)."""
    pair = isinstance(word, tuple) and len(word) == 2
    return pair and isinstance(word[1], numbers.Integral)  # type: ignore[index]


def refuse_blank(texts: list[Text]) -> list[Text]:
    """Validate that no text is empty or blank, and return the texts.

    Raises:
        InputError: one is.
    """
    blank = next((i for i, text in enumerate(texts) if is_blank(text)), None)
    if blank is not None:
        raise InputError(f"text {blank} is blank, {texts[blank]!r:.40}: leave it out of the fit")
    return texts


def is_blank(text: Text) -> bool:
    """Whether a text has no token id, or nothing but white space."""
    return not text.strip() if isinstance(text, str) else not text
