"""Texts line by line: plain, or as JSON. A line that cannot be read is handed on with its problem and its number."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

from ..errors import DataError

TEXT = "text"  # the field that is read where none is named
LONGEST = 64 * 2**20  # bytes of a line at most: a file without line ends would sit in memory whole
UNSEEN = 100  # objects without the wanted field before the field is held to be a mistake


@dataclass(frozen=True, slots=True)
class Record:
    """One record of a file.

    Attributes:
        line: its line, from 1; its row in a .parquet file; its place among texts given one by one.
        fields: by name; None where the record cannot be read.
        problem: why not.
    """

    line: int
    fields: Mapping[str, Any] | None
    problem: str | None = None


class Reader(ABC):
    """An open file of texts.

    Attributes:
        field: the name of the field that holds the texts.
        total: how long the file is, in bytes or rows; None where that is not known.
        at: how much of it has been read, in the same unit.
    """

    field: str = TEXT
    total: int | None = None
    at: int = 0

    @abstractmethod
    def __iter__(self) -> Iterator[Record]:
        """The records in order."""

    def close(self) -> None:
        """Close the file, where there is one."""


class Stream(Protocol):
    """Bytes that are read a line at a time."""

    def readline(self, size: int = -1, /) -> bytes:
        """The next line, or so many bytes of it; nothing at the end."""

    def close(self) -> None:
        """Nothing is read any more."""


class ListedReader(Reader):
    """Texts given one by one.

    Args:
        texts: any values.
        beside: more fields of every record.

    >>> [record.fields for record in ListedReader(["a"])]
    [{'text': 'a'}]
    """

    def __init__(self, texts: Sequence[object], beside: Mapping[str, Any] | None = None) -> None:
        self.texts, self.total, self.beside = texts, len(texts), beside or {}

    def __iter__(self) -> Iterator[Record]:
        for text in self.texts:
            self.at += 1
            yield Record(self.at, {TEXT: text, **self.beside})


class LinesReader(Reader):
    """A text per line, in UTF-8.

    Args:
        stream: open for reading bytes.
        total: its length in bytes, where it is known.
    """

    place: Callable[[], int] | None = None
    """How much has been read, where that is not the number of bytes of the lines."""

    def __init__(self, stream: Stream, total: int | None = None) -> None:
        self.stream, self.total = stream, total

    def close(self) -> None:
        """Close the stream."""
        self.stream.close()

    def lines(self) -> Iterator[tuple[int, str, str | None]]:
        """Line number, line without its end, problem. Bytes that are not UTF-8 become lone surrogates."""
        number = 0
        while raw := self.stream.readline(LONGEST):
            number += 1
            self.at = self.at + len(raw) if self.place is None else self.place()
            if len(raw) == LONGEST and not raw.endswith(b"\n"):
                self._skip()
                yield number, "", f"is {LONGEST} bytes long or more"
                continue
            raw = raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw
            text = raw.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", "surrogateescape")
            yield number, text, None if raw.isascii() else _not_utf8(text)

    def _skip(self) -> None:
        """Read on to the line's end."""
        while raw := self.stream.readline(LONGEST):
            self.at = self.at + len(raw) if self.place is None else self.place()
            if raw.endswith(b"\n"):
                return

    def __iter__(self) -> Iterator[Record]:
        for number, text, problem in self.lines():
            yield Record(number, None, problem) if problem else Record(number, {TEXT: text})


class JsonLinesReader(LinesReader):
    """A JSON object, or a JSON string, per line.

    Args:
        stream: open for reading bytes.
        total: its length in bytes, where it is known.
        field: which field holds the texts; None where the objects may have any fields.
        name: of the file, for errors.
    """

    def __init__(
        self, stream: Stream, total: int | None = None, field: str | None = TEXT, name: str = "the input"
    ) -> None:
        super().__init__(stream, total)
        self.field, self.name, self.any = field or TEXT, name, field is None

    def __iter__(self) -> Iterator[Record]:
        seen: set[str] = set()
        objects = -1 if self.any else 0  # none of which has the field, so far
        for number, text, problem in self.lines():
            record = Record(number, None, problem) if problem else self._read(number, text)
            if record.fields is not None and objects >= 0:
                objects = -1 if self.field in record.fields else objects + 1
                seen |= set(record.fields) if objects > 0 else set()
            if objects >= UNSEEN:
                no_field(self.name, self.field, sorted(seen))
            yield record
        if objects > 0:
            no_field(self.name, self.field, sorted(seen))

    def _read(self, number: int, text: str) -> Record:
        if not text.strip():
            return Record(number, None, "is a blank line")
        try:
            found = json.loads(text)
        except (ValueError, RecursionError) as e:
            return Record(number, None, f"is not JSON: {e}")
        if isinstance(found, str):
            found = {self.field: found}
        if not isinstance(found, dict):
            return Record(number, None, f"is a JSON {kind_of(found)}, not an object or a string")
        return Record(number, found)


def no_field(name: object, field: str, columns: Iterable[str]) -> NoReturn:
    """Say that a column is not there, and which are.

    Raises:
        DataError: always.
    """
    raise DataError(f"{name} has no column {field!r}: it has {', '.join(columns) or 'none'}")


def kind_of(value: object) -> str:
    """What JSON calls a value.

    >>> kind_of([1])
    'array'
    """
    names: dict[type, str] = {dict: "object", list: "array", str: "string", bool: "boolean", type(None): "null"}
    return names.get(type(value), "number")


def _not_utf8(text: str) -> str | None:
    at = next((i for i, c in enumerate(text) if "\udc80" <= c <= "\udcff"), None)
    return None if at is None else f"is not UTF-8: byte 0x{ord(text[at]) - 0xDC00:02x} at character {at}"
