"""Readers of text files, one record at a time: lines and JSON lines."""

from __future__ import annotations

import codecs
import io
import json
import re
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, BinaryIO, NoReturn

from ..errors import DataError
from ..spelling import did_you_mean

TEXT = "text"  # the default name of the field with the texts
LISTED = 30  # number of columns that an error lists
CHECKED = 100  # number of JSON objects after which a field that none of them has is an error
ESCAPED = re.compile("[\udc80-\udcff]")  # a byte that could not be decoded, as `surrogateescape` keeps it
DAMAGE = (OSError, EOFError, zlib.error, UnicodeError)  # what reading a damaged file raises


@dataclass(frozen=True, slots=True)
class FileForm:
    """The layout of a text file.

    Attributes:
        delimiter: the character between the columns of a table; None = by the file's ending and its header.
        encoding: its encoding; None = UTF-8.
        header: whether the first row of a table names its columns.
    """

    delimiter: str | None = None
    encoding: str | None = None
    header: bool = True


USUAL_FORM = FileForm()


@dataclass(frozen=True, slots=True)
class Record:
    """One record of a file.

    Attributes:
        line: its first line, from 1; its row in a .parquet file; its position in a list of texts.
        fields: by name; None if the record cannot be read.
        problem: why it cannot be read.
    """

    line: int
    fields: Mapping[str, Any] | None
    problem: str | None = None


class Reader(ABC):
    """An open file of texts.

    Attributes:
        field: the name of the field with the texts.
        total: the length of the file, in bytes or rows; None if unknown.
        at: how much of it has been read, in the same unit; bytes are read in blocks.
        columns: the names of the columns; empty if they are unknown before the rows are read.
        only_strings: whether all values are strings.
        kinds: the type of each column that is kept with the text: "text", "json", or an Arrow type.
    """

    field: str = TEXT
    columns: Sequence[str] = ()
    only_strings: bool = False
    kinds: Mapping[str, Any] = MappingProxyType({})
    total: int | None = None
    at: int = 0

    @abstractmethod
    def __iter__(self) -> Iterator[Record]:
        """The records in order."""

    def close(self) -> None:
        """Close the file, if there is one."""


class ListedReader(Reader):
    """Texts from a list.

    Args:
        texts: any values.
        keep: further fields of every record.

    >>> [record.fields for record in ListedReader(["a"])]
    [{'text': 'a'}]
    """

    def __init__(self, texts: Sequence[object], keep: Mapping[str, Any] | None = None) -> None:
        self.texts, self.total, self.keep = texts, len(texts), keep or {}

    def __iter__(self) -> Iterator[Record]:
        for text in self.texts:
            self.at += 1
            yield Record(self.at, {TEXT: text, **self.keep})


class LinesReader(Reader):
    """A text per line.

    Lines that cannot be decoded are rejected one by one. But if `form` names no encoding, and the first line that is
    not ASCII is not UTF-8, the file is in a different encoding, which is an error.

    Args:
        stream: open for reading bytes.
        name: the file's name in errors.
        form: its layout.
    """

    def __init__(self, stream: BinaryIO, name: str = "the input", form: FileForm = USUAL_FORM) -> None:
        self.name, self.form = name, form
        self.encoding = codecs.lookup(form.encoding or "utf-8").name
        encoding = "utf-8-sig" if self.encoding == "utf-8" else self.encoding
        self.stream = io.TextIOWrapper(stream, encoding, "surrogateescape", newline="\n")
        self.certain = form.encoding is not None
        self.source = getattr(stream, "fileobj", stream)  # of a gzipped file, the compressed bytes

    def close(self) -> None:
        """Close the stream."""
        self.stream.close()

    def lines(self, ends: bool = False) -> Iterator[tuple[int, str, str | None]]:
        """Line number, line and problem; bytes that cannot be decoded become lone surrogates."""
        number, seekable = 0, self.source.seekable()
        try:
            for number, line in enumerate(self.stream, 1):
                if seekable:
                    self.at = self.source.tell()
                text = line if ends else line.removesuffix("\n").removesuffix("\r")
                yield number, text, None if line.isascii() else self._problem(number, text)
        except DAMAGE as e:
            raise DataError(f"{self.name} cannot be read after line {number}: {e}") from None

    def _problem(self, number: int, text: str) -> str | None:
        bad = ESCAPED.search(text)
        if bad is None:
            self.certain = True
            return None
        wrong = f"is not {self.encoding.upper()}: byte 0x{ord(bad[0]) - 0xDC00:02x} at character {bad.start()}"
        if not self.certain:
            raise DataError(f"{self.name} {wrong} of line {number}: pass encoding=, such as cp1252")
        return wrong

    def __iter__(self) -> Iterator[Record]:
        for number, text, problem in self.lines():
            yield Record(number, None, problem) if problem else Record(number, {TEXT: text})


class JsonLinesReader(LinesReader):
    """A JSON object, or a JSON string, per line."""

    needed: Sequence[str] = ()

    def need(self, field: str | None, keep: Sequence[str] = ()) -> None:
        """Name the field of the texts and further fields: it is an error if no object has one of them."""
        self.field, self.needed = field or TEXT, [*([field] if field else []), *keep]
        self.kinds = dict.fromkeys(keep, "json")

    def __iter__(self) -> Iterator[Record]:
        fields, objects = set[str](), 0
        for number, text, problem in self.lines():
            record = Record(number, None, problem) if problem else self._read(number, text)
            if record.fields is not None and objects < CHECKED:
                objects += 1
                fields.update(record.fields)
                if objects == CHECKED:
                    self._check(fields)
            yield record
        if 0 < objects < CHECKED:
            self._check(fields)

    def _check(self, fields: set[str]) -> None:
        for name in self.needed:
            if name not in fields:
                no_field(self.name, name, sorted(fields))

    def _read(self, number: int, text: str) -> Record:
        if not text.strip():
            return Record(number, None, "is a blank line")
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as e:
            return Record(number, None, f"is not JSON: {e}")
        if isinstance(value, str):
            value = {self.field: value}
        if not isinstance(value, dict):
            return Record(number, None, f"is a JSON {kind_of(value)}, not an object or a string")
        return Record(number, value)


def no_field(name: object, field: str, columns: Sequence[str], fix: str = "choose one of them") -> NoReturn:
    """Raise a DataError that names a missing column and lists the columns that exist."""
    listed = [c if c.isprintable() and c == c.strip() else repr(c) for c in columns[:LISTED]]
    listed += [f"and {len(columns) - LISTED} more"] if len(columns) > LISTED else []
    has = ", ".join(listed) or "none"
    raise DataError(f"{name} has no column {field!r}{did_you_mean(field, columns)}: it has {has}: {fix}")


def kind_of(value: object) -> str:
    """The JSON name of a value's type.

    >>> kind_of([1])
    'array'
    """
    names: dict[type, str] = {dict: "object", list: "array", str: "string", bool: "boolean", type(None): "null"}
    return names.get(type(value), "number")
