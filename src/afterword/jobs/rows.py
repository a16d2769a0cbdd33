"""The rows of the input: read from files, checked, and embedded a window at a time."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, time
from itertools import chain, islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError, JobError, TooLong, WordNotFound
from ..files.lines import TEXT, USUAL_FORM, FileForm, Reader, kind_of
from ..files.read import FORMATS, check_file, format_of, open_texts
from ..text.tokenizer import check_text

Array = NDArray[np.floating[Any]]


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


WINDOW = 2048  # maximum number of rows in a window


CHARACTERS = 2**24  # approximate maximum number of characters in a window


Progress = Callable[[float], None]


def windows(items: Iterable[Item], rows: int = WINDOW, characters: int = CHARACTERS) -> Iterator[list[Item]]:
    """Group items into windows of so many rows; of fewer, if their texts are long.

    >>> [len(w) for w in windows([Item(1, "a"), Item(2, "b"), Item(3, "c")], rows=2)]
    [2, 1]
    """
    window: list[Item] = []
    held = 0
    for item in items:
        window.append(item)
        held += len(item.text or "")
        if len(window) >= rows or held >= characters:
            yield window
            window, held = [], 0
    if window:
        yield window


class Listener(Protocol):
    """A progress listener: its methods are called while a file is embedded."""

    def begin(self, at: int, rows: int, characters: Sequence[int]) -> None:
        """Called when a window begins.

        Args:
            at: how far the input was read, in its own unit.
            rows: the number of rows that were read in all.
            characters: of each text of the window that is embedded.
        """

    def more(self, rows: float) -> None:
        """Called when so many more rows of the window were embedded."""

    def end(self) -> None:
        """Called when the window was written."""

    def skip(self, at: int, rows: int) -> None:
        """Called instead of the others, for a window that an earlier run has embedded."""


@dataclass(frozen=True)
class Embedding:
    """How rows become vectors.

    Attributes:
        encode: from rows to vectors (n, D) by name; it calls its second argument with the number of finished rows.
        why_nan: from a text whose vector is NaN or infinite to the reason.
        columns: from rows to the columns that are written beside the vectors.
    """

    encode: Callable[[Sequence[Item], Progress], dict[str, Array]]
    why_nan: Callable[[str], str]
    columns: Callable[[Sequence[Item]], dict[str, list[Any]]]


def stream_rows(
    reader: Reader, items: Iterable[Item], embedding: Embedding, listener: Listener, window: int = WINDOW
) -> Iterator[tuple[list[Item], Block]]:
    """Embed rows a window at a time; yields its rows, with the `problem` of each without a vector, and the block.

    Args:
        reader: the open input, which knows how much of it was read.
        items: the rows of the input.
        embedding: how they become vectors.
        listener: progress callbacks.
        window: maximum number of rows in a window.
    """
    empty = embedding.encode([], lambda _: None)
    rows = 0
    for part in windows(items, window):
        rows += len(part)
        listener.begin(reader.at, rows, [len(item.text or "") for item in part if item.problem is None])
        vectors = embed_window(part, lambda some: embedding.encode(some, listener.more), embedding.why_nan, empty)
        yield part, Block(embedding.columns(part), vectors)
        listener.end()


def embed_window(
    items: list[Item], encode: Encode, why_nan: Callable[[str], str], empty: dict[str, Array]
) -> dict[str, Array]:
    """Vectors by name (n, D), NaN for an item without one, whose `problem` is set to the reason."""
    good = [i for i, item in enumerate(items) if item.problem is None]
    encoded, problems = bisected(encode, [items[i] for i in good], empty)
    finite = np.logical_and.reduce([np.isfinite(rows).all(1) for rows in encoded.values()])
    for i, problem, fine in zip(good, problems, finite, strict=True):
        items[i].problem = problem or (None if fine else why_nan(items[i].text or ""))
    vectors = {name: np.full((len(items), a.shape[1]), np.nan, a.dtype) for name, a in empty.items()}
    for name, rows in encoded.items():
        vectors[name][np.asarray(good, int)[finite]] = rows[finite]
    return vectors


Encode = Callable[[Sequence[Item]], dict[str, Array]]


def bisected(
    encode: Encode, items: Sequence[Item], empty: dict[str, Array]
) -> tuple[dict[str, Array], list[str | None]]:
    """Encode items; if one is refused, find it by bisection and encode the others.

    Args:
        encode: from items to vectors (n, D) by name.
        items: n items.
        empty: the result of `encode` for no items.

    Returns:
        Vectors, NaN for a refused item; and for each item, the reason why it was refused, or None.
    """
    if not items:
        return empty, []
    try:
        return encode(items), [None] * len(items)
    except (TooLong, WordNotFound) as e:
        if len(items) == 1:
            reason = str(e).removeprefix("text 0 ").replace(" text 0", " the text").replace("text 0 ", "the text ")
            return {name: np.full((1, a.shape[1]), np.nan, a.dtype) for name, a in empty.items()}, [reason]
    half = len(items) // 2
    (a, why), (b, too) = (bisected(encode, part, empty) for part in (items[:half], items[half:]))
    return {name: np.concatenate([a[name], b[name]]) for name in empty}, why + too


SHARD_ROWS = 1024  # what two cores embed in about 20 s with a model of the size of MiniLM to BERT-base


@dataclass(frozen=True)
class Inputs:
    """The files of a job, and how they are read.

    Args:
        files: .txt, .jsonl, .csv, .tsv or .parquet files; all but the last may be gzipped.
        kind: their format; None = by each file's ending.
        field: the field that holds the texts.
        keep: fields that are written beside the vectors.
        form: how the files are written.
        condition, condition_field: as `items_of` takes them.
        spooled: the only file holds what came from the standard input, and is named so in messages.
    """

    files: tuple[Path, ...]
    kind: str | None = None
    field: str | None = None
    keep: tuple[str, ...] = ()
    form: FileForm = USUAL_FORM
    condition: str | None = None
    condition_field: str | None = None
    spooled: bool = False

    def open(self, file: int, tell: Callable[[str], object] = lambda _: None) -> Reader:
        """One of the files.

        Args:
            file: its number.
            tell: is given each choice that was made in reading it, if it is not the usual one.

        Raises:
            DataError: it cannot be read, or lacks a column.
        """
        path, beside = self.files[file], [*self.keep, *([self.condition_field] if self.condition_field else [])]
        form: dict[str, Any] = {"field": self.field, "beside": beside, "form": self.form, "tell": tell}
        if self.spooled:
            return open_texts(None, path.open("rb"), kind=self.kind, **form)
        check_file(path)
        with path.open("rb") as nothing:
            return open_texts(path, nothing, kind=self.kind, **form)

    def items(self, file: int) -> Iterator[Item]:
        """The rows of one of the files."""
        reader = self.open(file)
        try:
            yield from items_of(reader, self.condition, self.condition_field, self.keep)
        finally:
            reader.close()

    def kinds(self, tell: Callable[[str], object] = lambda _: None) -> dict[str, Any]:
        """The type of each kept column, which must be the same in all files.

        Args:
            tell: as `open` takes it, for each file once.

        Raises:
            DataError: a file cannot be read, or lacks a column.
            JobError: the types are not the same.
        """
        found: dict[str, Any] = {}
        for file, path in enumerate(self.files):
            reader = self.open(file, tell)
            reader.close()
            kinds = {name: reader.kinds[name] for name in self.keep}
            if file and kinds != found:
                name = next(name for name in kinds if kinds[name] != found[name])
                raise JobError(
                    f"the column {name!r} of {path} is {kinds[name]}, and of {self.files[0]} {found[name]}: "
                    "make the files alike"
                )
            found = kinds
        return found


def files_of(paths: Sequence[Path]) -> tuple[Path, ...]:
    """The files that are named, and those with a known ending in folders that are named, by their names' order.

    Raises:
        JobError: a folder holds none, or a file is given twice.
        MissingDataset: there is no such file.
    """
    files: list[Path] = []
    for path in paths:
        if not path.is_dir():
            check_file(path)
        inside = sorted(f for f in path.iterdir() if f.is_file() and format_of(f) in FORMATS) if path.is_dir() else None
        if inside == []:
            raise JobError(f"{path} holds no .{', .'.join(FORMATS)} file")
        files += [path] if inside is None else inside
    twice = next((f for i, f in enumerate(files) if f.resolve() in {g.resolve() for g in files[:i]}), None)
    if twice is not None:
        raise JobError(f"{twice} is given twice: name each file once")
    return tuple(files)


Column = Sequence[Any]


@dataclass(frozen=True)
class Block:
    """Some rows of a result.

    Attributes:
        columns: values by column name, n each.
        vectors: vectors by column name, (n, D) each; a row of NaN stands for a missing vector.
        unknown: how many of the texts are mostly unknown to the model.
    """

    columns: Mapping[str, Column]
    vectors: Mapping[str, Array]
    unknown: int = 0

    def __len__(self) -> int:
        """N rows."""
        return len(next(iter(self.vectors.values())))
