"""Words in the context of their texts as rows: read from a file or a stream, and embedded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ..errors import DataError, InputError
from ..files.lines import TEXT, FileForm, Reader, Record
from ..files.read import TABLES, check_file, format_of, open_rows, open_texts
from ..methods import AnyMethod
from ..text.words import Word, span_of
from . import VECTOR, WORD_COLUMNS
from .names import reasons_with_options
from .recipe import Loader, MethodsEmbedder
from .rows import Array, Embedding, Inputs, Item, Progress, fault, kept_columns, values_of


def open_words(
    path: Path | None, stdin: BinaryIO, keep: Sequence[str], form: FileForm, tell: Callable[[str], object]
) -> Reader:
    """Open a file of rows, each with a text and its words; arguments as for `files.read.open_texts`.

    Raises:
        DataError: the file cannot be read, or has no column of words.
    """
    if path is None:
        return open_texts(None, stdin, kind="jsonl", beside=keep, form=form, tell=tell)
    kind = None if format_of(path) in TABLES else "jsonl"
    reader = open_rows(path, TEXT, kind=kind, beside=keep, form=form, tell=tell)
    if reader.columns and "word" not in reader.columns and ("words" not in reader.columns or reader.only_strings):
        raise DataError(
            f"{path} has no column 'word': give a word with each text, in the columns text and word; it has "
            + ", ".join(reader.columns)
        )
    return reader


class WordInputs(Inputs):
    """A file of words in context."""

    def open(self, file: int, tell: Callable[[str], object] = lambda _: None) -> Reader:
        """The file."""
        path = self.files[file]
        check_file(path)
        with path.open("rb") as nothing:
            if not self.spooled:
                return open_words(path, nothing, self.keep, self.form, tell)
        return open_words(None, path.open("rb"), self.keep, self.form, tell)

    def items(self, file: int) -> Iterator[Item]:
        """The words of the file."""
        reader = self.open(file)
        try:
            yield from word_items(reader, self.keep)
        finally:
            reader.close()


def word_items(reader: Iterable[Record], keep: Sequence[str] = ()) -> Iterator[Item]:
    """The words of a file, each with its text, its span (start, end) and kept values, or its problem."""
    for record in reader:
        fields = record.fields or {}
        own, kept, wrong = values_of(fields, TEXT, keep)
        wanted = fields.get("words", [fields["word"]] if "word" in fields else None)
        problem = record.problem or (fault(fields[TEXT]) if TEXT in fields else f"has no field {TEXT!r}") or wrong
        if problem is None and (not isinstance(wanted, list) or not wanted):
            problem = "has no field 'word'" if wanted is None else "'words' is not a list of words"
        if problem is not None or own is None:
            yield Item(record.line, own, problem, None, kept)
            continue
        for word in wanted:
            yield _item(record.line, own, word, kept)


def _item(line: int, text: str, word: object, kept: Mapping[str, Any]) -> Item:
    try:
        return Item(line, text, None, span_of(_word(word), text, "the text"), kept)
    except InputError as e:
        return Item(line, text, str(e), word, kept)


def _word(word: object) -> Word:
    """A word from JSON: a list is a pair, and true is not a number."""
    pair = tuple(word) if isinstance(word, list) else word
    if isinstance(pair, tuple) and any(isinstance(part, bool) for part in pair):
        pair = None
    return pair  # type: ignore[return-value]  # span_of validates it


@dataclass
class WordRows:
    """Embeds rows of words; the interface is that of `TextRows`."""

    embedder: MethodsEmbedder

    def split(self, items: Iterator[Item]) -> Iterator[Item]:
        """The rows as they are."""
        return items

    def encode(self, items: Sequence[Item], done: Progress) -> dict[str, Array]:
        """The vectors (n, D) of n words; words of one text come from one forward."""
        encoder, options = self.embedder.encoder, self.embedder.options
        if not items:
            return {VECTOR: encoder.encode([])}
        texts = [list(group) for _, group in groupby(items, key=lambda item: item.line)]
        rows_of_a_text = len(items) / len(texts)
        with reasons_with_options():
            vectors = encoder.encode_words(
                [group[0].text or "" for group in texts], [[item.beside for item in group] for group in texts],
                **options, show_progress_bar=lambda more: done(more * rows_of_a_text),
            )  # fmt: skip
        return {VECTOR: np.concatenate(vectors)}

    def embedding(self, kinds: Mapping[str, Any], parquet: bool) -> Embedding:
        """How words become vectors and columns; arguments as for `TextRows.embedding`."""
        return Embedding(self.encode, not_finite, lambda items: columns(items, kinds, parquet))


@dataclass(frozen=True)
class WordRecipe:
    """What the vectors of words are made by.

    Args:
        load: loads the encoder.
        method: of the words; None = the encoder's own.
        options: arguments of `Encoder.encode_words`.
    """

    load: Loader
    method: AnyMethod | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def open(self) -> WordRows:
        """Load the encoder."""
        methods = {} if self.method is None else {VECTOR: self.method}
        return WordRows(MethodsEmbedder.open(self.load, methods, dict(self.options)))


def not_finite(text: str) -> str:
    """The reason why the vector of a word is NaN or infinite."""
    return "has a vector that is not finite: try --dtype float32"


def columns(items: Sequence[Item], kinds: Mapping[str, Any], parquet: bool) -> dict[str, list[Any]]:
    """The columns besides the vectors; a rejected word has no span."""
    kinds = {name: kind for name, kind in kinds.items() if name not in WORD_COLUMNS}
    spans = [item.beside if item.problem is None else (None, None) for item in items]
    return {
        "line": [item.line for item in items],
        "text": [item.text for item in items],
        "word": [_spelling(item) for item in items],
        "start": [start for start, _ in spans],
        "end": [end for _, end in spans],
        **kept_columns(items, kinds, parquet),
    }


def _spelling(item: Item) -> str | None:
    if item.problem is None and item.text is not None:
        start, end = item.beside
        return item.text[start:end]
    first = item.beside[0] if isinstance(item.beside, list | tuple) and item.beside else item.beside
    return first if isinstance(first, str) and first.isprintable() else None
