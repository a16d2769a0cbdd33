"""A row to embed, and the reason why it cannot be embedded."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, time
from itertools import chain, islice
from typing import Any

from ..errors import InputError
from ..files.lines import TEXT, Reader, kind_of
from ..text.tokenizer import check_text


@dataclass(slots=True)
class Item:
    """A row to embed.

    Attributes:
        line: its line in the input.
        text: the text; None if there is none that can be written.
        problem: why it has no vector; None if it has one.
        beside: a value that belongs to the text, such as its condition or its word.
        kept: other values of the row, by column, which are written as they are.
    """

    line: int
    text: str | None
    problem: str | None = None
    beside: Any = None
    kept: Mapping[str, Any] = field(default_factory=dict)


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


def unwritable(value: object) -> str | None:
    r"""Why a value cannot be written in UTF-8, or as JSON; None if it can.

    >>> unwritable({"a": ["b"]}), unwritable({"a": ["\ud800"]})
    (None, 'holds a lone surrogate')
    """
    if isinstance(value, str):
        fine = value.isascii() or not any("\ud800" <= c <= "\udfff" for c in value)
        return None if fine else "holds a lone surrogate"
    if not isinstance(value, Mapping | list | tuple):
        return None
    parts = [*value, *value.values()] if isinstance(value, Mapping) else value
    return next((why for part in parts if (why := unwritable(part))), None)


def values_of(
    fields: Mapping[str, Any], text: str, keep: Sequence[str]
) -> tuple[str | None, dict[str, Any], str | None]:
    """What is written of a row whatever becomes of it.

    Args:
        fields: of the row.
        text: the name of the field that holds the text.
        keep: the names of fields to keep.

    Returns:
        The text, None where it cannot be written; the kept values; and why one of these cannot be.

    >>> values_of({"text": " ", "id": 7}, "text", ["id", "more"])
    (' ', {'id': 7, 'more': None}, None)
    """
    own = fields.get(text)
    kept = {name: fields.get(name) for name in keep}
    wrong = {name: why for name, value in kept.items() if (why := unwritable(value))}
    kept.update(dict.fromkeys(wrong))
    problem = next((f"{name!r} {why}" for name, why in wrong.items()), None)
    return own if isinstance(own, str) and not unwritable(own) else None, kept, problem


def items_of(
    reader: Reader, condition: str | None = None, condition_field: str | None = None, keep: Sequence[str] = ()
) -> Iterator[Item]:
    """The rows of the input: each a text with its condition and kept values, or the reason why it cannot be used."""
    for record in reader:
        fields = record.fields
        if fields is None:
            yield Item(record.line, None, record.problem)
            continue
        text, beside = fields.get(reader.field), condition
        problem = fault(text) if reader.field in fields else f"has no field {reader.field!r}"
        if condition_field is not None:
            beside = fields.get(condition_field)
            wrong = fault(beside)
            problem = problem or (f"{condition_field!r} {wrong}" if wrong else None)
        own, kept, wrong = values_of(fields, reader.field, keep)
        yield Item(record.line, own, problem or wrong, beside, kept)


def read_ahead(items: Iterator[Item], rows: int = 100) -> Iterator[Item]:
    """The same rows, of which the first are read now: a wrong column or encoding is found before a model is loaded."""
    first = list(islice(items, rows))
    return chain(first, items)


def as_json(value: Any) -> Any:
    """A value of a Parquet column, or one that was read from JSON, as JSON has it.

    Dates and times are written as ISO 8601 has them, bytes in base64, decimals as strings, and what is no finite number
    as null.

    >>> as_json([date(2026, 1, 31), b"a", math.nan])
    ['2026-01-31', 'YQ==', None]
    """
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): as_json(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(part) for part in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return value.isoformat() if isinstance(value, date | time) else str(value)


def as_text(value: Any) -> str | None:
    """A JSON value as a column of strings has it: strings as they are, null as None, other values as JSON.

    >>> as_text("a"), as_text([1, "每"]), as_text(math.nan)
    ('a', '[1, "每"]', None)
    """
    plain = as_json(value)
    return plain if plain is None or isinstance(value, str) else json.dumps(plain, ensure_ascii=False)


def kept_columns(items: Sequence[Item], kinds: Mapping[str, Any], parquet: bool) -> dict[str, list[Any]]:
    """The kept values of n rows, by column.

    Args:
        items: the rows.
        kinds: the type of each column, as `Reader.kinds` has it; "exact" = any value, as JSON that gives it back.
        parquet: they are written to a .parquet file, where values of JSON are strings.
    """
    columns = {}
    for name, kind in kinds.items():
        values = [item.kept.get(name) for item in items]
        if kind == "exact":
            values = [json.dumps(as_json(value)) for value in values]
        elif parquet and kind == "json":
            values = [as_text(value) for value in values]
        elif not parquet and kind != "text":
            values = [as_json(value) for value in values]
        columns[name] = values
    return columns


def text_columns(items: Sequence[Item], kinds: Mapping[str, Any], parquet: bool) -> dict[str, list[Any]]:
    """The columns that are written beside the vectors of n texts; arguments as for `kept_columns`."""
    kinds = {name: kind for name, kind in kinds.items() if name != TEXT}
    return {TEXT: [item.text for item in items], **kept_columns(items, kinds, parquet)}
