"""Texts line by line: plain, or as JSON. A line that cannot be read is handed on with its problem and its number."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NoReturn, Protocol

from ..errors import DataError, warn
from ..spelling import did_you_mean

TEXT = "text"  # the field that is read where none is named
LONGEST = 64 * 2**20  # bytes of a line at most: a file without line ends would sit in memory whole
BOM = b"\xef\xbb\xbf"  # the byte order mark of UTF-8
SHOWN = 30  # columns that an error names
UNSEEN = 100  # objects without the wanted field before the field is held to be a mistake


@dataclass(frozen=True, slots=True)
class FileForm:
    """How a file is written, as far as the user says.

    Attributes:
        delimiter: the character between the columns of a table; None = the one that fits its header.
        encoding: of a text file; None = that of its byte order mark, or UTF-8.
        header: whether the first row of a table names its columns.
        options: whether messages may name the options of the command line.
    """

    delimiter: str | None = None
    encoding: str | None = None
    header: bool = True
    options: bool = False

    def hint(self, text: str, other: str = "") -> str:
        """The end of a message: `text` if it may name options, else `other`."""
        return text if self.options else other


USUAL_FORM = FileForm()


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
        columns: the names of the columns; empty where they are not known before the rows are read.
        only_strings: whether columns hold nothing but strings.
        kinds: the type of each column that is kept beside the text: "text", "json", or an Arrow type.
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

    The first line that is not ASCII decides: if it is not UTF-8, the file is not, and that is an error. After a line in
    UTF-8, or where the user or a byte order mark says that the file is UTF-8, only the damaged lines are rejected.

    Args:
        stream: open for reading bytes.
        total: its length in bytes, where it is known.
        name: of the file, for errors.
        form: how it is written.
    """

    def __init__(
        self, stream: Stream, total: int | None = None, name: str = "the input", form: FileForm = USUAL_FORM
    ) -> None:
        self.stream, self.total, self.name, self.form = stream, total, name, form
        # How much has been read, where that is not the number of bytes of the lines.
        self.place: Callable[[], int] | None = getattr(stream, "place", None)
        self.utf8 = form.encoding is not None  # a file in another encoding arrives here in UTF-8

    def close(self) -> None:
        """Close the stream."""
        self.stream.close()

    def lines(self, ends: bool = False) -> Iterator[tuple[int, str, str | None]]:
        """Line number, line, problem. Bytes that are not UTF-8 become lone surrogates.

        Args:
            ends: whether lines keep the characters that end them.

        Raises:
            DataError: the file is not in UTF-8.
        """
        number = offset = 0
        while raw := self.stream.readline(LONGEST):
            number += 1
            self.at = self.at + len(raw) if self.place is None else self.place()
            if len(raw) >= LONGEST and not raw.endswith(b"\n"):
                offset += len(raw) + self._skip()
                yield number, "", f"is {LONGEST} bytes long or more"
                continue
            start, offset = offset, offset + len(raw)
            if number == 1 and raw.startswith(BOM):
                raw, start, self.utf8 = raw.removeprefix(BOM), start + len(BOM), True
            raw = raw if ends else raw.removesuffix(b"\n").removesuffix(b"\r")
            yield number, *self._decoded(raw, number, start)

    def _decoded(self, raw: bytes, number: int, start: int) -> tuple[str, str | None]:
        try:
            text = raw.decode()
        except UnicodeDecodeError as e:
            if self.utf8:
                text = raw.decode("utf-8", "surrogateescape")
                return text, f"is not UTF-8: byte 0x{raw[e.start]:02x} at character {len(raw[: e.start].decode())}"
            fix = self.form.hint(
                "say how it is encoded, as in --encoding cp1252; --encoding utf-8 rejects such lines only",
                "save it in UTF-8",
            )
            raise DataError(
                f"{self.name} is not UTF-8: byte 0x{raw[e.start]:02x} at offset {start + e.start}, line {number}: "
                + ("it holds NUL bytes too: give a file of text" if b"\0" in raw else fix)
                + (", or pack or fetch it again" if self.name.endswith(".gz") else "")
            ) from None
        self.utf8 = self.utf8 or not raw.isascii()
        return text, None

    def _skip(self) -> int:
        """Read on to the line's end; return the number of bytes."""
        skipped = 0
        while raw := self.stream.readline(LONGEST):
            skipped += len(raw)
            self.at = self.at + len(raw) if self.place is None else self.place()
            if raw.endswith(b"\n"):
                break
        return skipped

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
        form: how it is written.
        beside: other fields that are wanted.
    """

    def __init__(
        self,
        stream: Stream,
        total: int | None = None,
        field: str | None = TEXT,
        name: str = "the input",
        form: FileForm = USUAL_FORM,
        beside: Sequence[str] = (),
    ) -> None:
        super().__init__(stream, total, name, form)
        self.field, self.wanted = field or TEXT, [] if field is None else [field, *beside]
        self.kinds = dict.fromkeys(beside, "json")

    def __iter__(self) -> Iterator[Record]:
        unseen, fields, objects = self.wanted, set[str](), 0
        for number, text, problem in self.lines():
            record = Record(number, None, problem) if problem else self._read(number, text)
            if unseen and record.fields is not None and objects < UNSEEN:
                objects += 1
                fields |= set(record.fields)
                unseen = [name for name in unseen if name not in fields]
                if objects == UNSEEN and self.field in unseen:
                    no_field(self.name, self.field, sorted(fields), self._hint(self.field))
                if objects == UNSEEN and unseen:
                    names = ", ".join(map(repr, unseen))
                    warn(f"none of the first {UNSEEN} objects of {self.name} has {names}")
            yield record
        if unseen and 0 < objects < UNSEEN:
            no_field(self.name, unseen[0], sorted(fields), self._hint(unseen[0]))

    def _hint(self, field: str) -> str:
        return self.form.hint("; choose one with --column") if field == self.field else ""

    def _read(self, number: int, text: str) -> Record:
        if not text.strip():
            return Record(number, None, "is a blank line")
        try:
            found = json.loads(text, object_pairs_hook=_object)
        except (ValueError, RecursionError) as e:
            return Record(number, None, f"is not JSON: {e}")
        except _Twice as e:
            return Record(number, None, f"has the field {e.args[0]!r} twice")
        if isinstance(found, str):
            found = {self.field: found}
        if not isinstance(found, dict):
            return Record(number, None, f"is a JSON {kind_of(found)}, not an object or a string")
        return Record(number, found)


class _Twice(Exception):
    """A JSON object has two fields of one name."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise _Twice(next(name for i, (name, _) in enumerate(pairs) if name in dict(pairs[:i])))
    return found


def no_field(name: object, field: str, columns: Sequence[str], hint: str = "") -> NoReturn:
    """Say that a column does not exist, and which are.

    Raises:
        DataError: always.
    """
    shown = [c if c.isprintable() and c == c.strip() else repr(c) for c in columns[:SHOWN]]
    shown += [f"and {len(columns) - SHOWN} more"] if len(columns) > SHOWN else []
    near = did_you_mean(field, columns)
    raise DataError(f"{name} has no column {field!r}{near}: it has {', '.join(shown) or 'none'}{hint}")


def kind_of(value: object) -> str:
    """What JSON calls a value.

    >>> kind_of([1])
    'array'
    """
    names: dict[type, str] = {dict: "object", list: "array", str: "string", bool: "boolean", type(None): "null"}
    return names.get(type(value), "number")
