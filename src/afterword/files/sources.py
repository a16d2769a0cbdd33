"""The bytes of a text file, packed or not, in any encoding: handed on as lines in UTF-8 that end in a newline."""

from __future__ import annotations

import codecs
import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast

from ..errors import DataError, MissingDataset
from ..spelling import did_you_mean
from .lines import LONGEST, USUAL_FORM, FileForm, Stream

HEAD = 2**16  # bytes that are looked at before a file is read, or fewer, up to the first newline
MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
"""Byte order marks, and the encodings that they say."""
KINDS = {
    b"PAR1": "a Parquet file: name it .parquet",
    b"\x1f\x8b": "packed by gzip: give it a name that ends in .gz",
    b"PK\x03\x04": "a zip archive or an Excel workbook: unpack it, or save the table as CSV",
    b"\xd0\xcf\x11\xe0": "an old Excel or Word file: save the table as CSV",
    b"%PDF-": "a PDF file: give its text",
    b"\x93NUMPY": "an array of numpy: give a file of text",
    b"ARROW1": "an Arrow file: write it as .parquet",
    b"SQLite format 3": "a database: write the table as CSV",
    b"\x89PNG": "an image: give a file of text",
    b"\xff\xd8\xff": "an image: give a file of text",
    b"\x7fELF": "a program: give a file of text",
}
"""What the first bytes of other files say of them."""
COMMON = (
    "utf-8 utf-16 utf-16-le utf-16-be cp1252 latin-1 cp1250 cp1251 mac-roman gb18030 gbk big5 shift-jis euc-kr".split()
)
DAMAGE = (OSError, EOFError, zlib.error)  # what reading a damaged .gz file raises


class Bytes(Stream, Protocol):
    """Bytes that are read a line or a block at a time."""

    def read1(self, size: int = -1, /) -> bytes:
        """So many bytes at most; nothing at the end."""


def check_file(path: Path) -> None:
    """Raise a MissingDataset or a DataError if there is no such file."""
    if path.is_dir():
        raise DataError(f"{path} is a folder: give a file")
    if not path.exists():
        raise MissingDataset(f"{path} does not exist")


@contextmanager
def opened(path: Path, form: FileForm = USUAL_FORM) -> Iterator[Stream]:
    """The lines of a file, unpacked if its name ends in .gz; closed if the block ends with an error.

    Raises:
        MissingDataset: there is no such file.
        DataError: it cannot be read.
    """
    check_file(path)
    try:
        file = path.open("rb")
    except OSError as e:
        raise DataError(f"{path} cannot be read: {e.strerror or e}") from None
    try:
        yield as_utf8(Unpacked(file, str(path)) if path.suffix.lower() == ".gz" else file, str(path), form)
    except BaseException:
        file.close()
        raise


def as_utf8(stream: Bytes, name: str, form: FileForm = USUAL_FORM) -> Stream:
    r"""The lines of a stream in UTF-8, each ended by a newline. A byte order mark of UTF-8 stays.

    Args:
        stream: open for reading bytes.
        name: of the file, for errors.
        form: says its encoding; None = that of its byte order mark, or UTF-8.

    Raises:
        DataError: it is no text, or its byte order mark says another encoding than `form`.

    >>> as_utf8(io.BytesIO("é\ré".encode("utf-16")), "a.txt").readline()
    b'\xc3\xa9\n'
    """
    head = stream.readline(HEAD)
    given = None if form.encoding is None else codecs.lookup(form.encoding).name
    head = _checked_kind(head, stream, name, given or "utf-8")
    mark = next((encoding for first, encoding in MARKS if head.startswith(first)), None)
    if mark is not None and given is not None and not given.startswith(mark):
        raise DataError(f"{name} begins with the byte order mark of {mark}: leave out --encoding {form.encoding}")
    encoding = mark or given or "utf-8"
    if encoding == "utf-8" and head.count(0) * 3 >= len(head) > 3 and (end := _zeros_at(head)):
        raise DataError(
            f"{name} holds a NUL in every other byte: "
            + form.hint(f"--encoding utf-16-{end} reads UTF-16 without its mark", "save it in UTF-8")
        )
    head, old_mac = _line_ends(head, stream, encoding)
    if encoding in ("utf-8", "utf-8-sig") and not old_mac:
        return _Again(head, stream)
    return Recoded(_Again(head, stream), encoding, name, old_mac, form)


def _checked_kind(head: bytes, stream: Bytes, name: str, encoding: str) -> bytes:
    """Refuse a file of another kind by its first bytes. Text may begin with some of them: then the bytes behind decide.

    Returns:
        The bytes that have been read.
    """
    kind = next((first for first in KINDS if head.startswith(first)), None)
    if kind is None:
        return head
    if kind.isascii() and kind.decode().isprintable():
        while len(head) < HEAD and (more := stream.read1(HEAD)):
            head += more
        if b"\0" not in head and _is_text(head, encoding):
            return head
    raise DataError(f"{name} is {KINDS[kind]}")


def _is_text(head: bytes, encoding: str) -> bool:
    """Whether the bytes can be decoded; the last character may be cut off."""
    try:
        codecs.getincrementaldecoder(encoding)().decode(head)
    except UnicodeError:
        return False
    return True


def _line_ends(head: bytes, stream: Bytes, encoding: str) -> tuple[bytes, bool]:
    """Find out whether lines end with a carriage return, as in files of old Macs: one is read, and no newline.

    Bytes are read up to a newline: `HEAD` at most, and after a carriage return as many as the longest line has.

    Returns:
        The bytes that have been read, and whether it is so.
    """
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    parts, text, size = [head], decoder.decode(head), len(head)
    old_mac = "\r" in text
    while "\n" not in text and size < (most := LONGEST if old_mac else HEAD) and (more := stream.readline(most - size)):
        parts.append(more)
        text, size = decoder.decode(more), size + len(more)
        old_mac = old_mac or "\r" in text
    return b"".join(parts), old_mac and "\n" not in text


def _zeros_at(head: bytes) -> str | None:
    """The byte order of UTF-16: NULs are at odd places only ("le"), or at even ones only ("be")."""
    odd, even = any(b == 0 for b in head[1::2]), any(b == 0 for b in head[::2])
    return None if odd == even else "le" if odd else "be"


def check_encoding(name: str) -> str:
    """An encoding that Python knows.

    Raises:
        DataError: there is no text encoding of that name.

    >>> check_encoding("cp1252")
    'cp1252'
    """
    try:
        "".encode(name)
        codecs.getincrementaldecoder(name)
    except (LookupError, ValueError, UnicodeError):
        raise DataError(
            f"{name!r} is no encoding{did_you_mean(name, COMMON)}: give a name such as {', '.join(COMMON[4:10])}"
        ) from None
    return name


class _Again:
    """A stream whose first bytes have been read, and are read again."""

    def __init__(self, head: bytes, stream: Bytes) -> None:
        self.head, self.stream = io.BytesIO(head), stream
        if isinstance(stream, Unpacked):
            self.place = stream.place

    def readline(self, size: int = -1, /) -> bytes:
        """The next line, or so many bytes of it."""
        line = self.head.readline(size)
        if line.endswith(b"\n") or len(line) == size:
            return line
        return line + self.stream.readline(size - len(line) if size >= 0 else -1)

    def read1(self, size: int = -1, /) -> bytes:
        """So many bytes at most."""
        return self.head.read(size) or self.stream.read1(size)

    def close(self) -> None:
        """Close the stream."""
        self.stream.close()


class Recoded:
    """A stream in another encoding, or with carriage returns as line ends, read as if it were not.

    Args:
        stream: open for reading bytes; closed by `close`.
        encoding: of the stream.
        name: of the file, for errors.
        old_mac: whether lines end with a carriage return.
        form: how the file is written.
    """

    def __init__(
        self, stream: Bytes, encoding: str, name: str, old_mac: bool = False, form: FileForm = USUAL_FORM
    ) -> None:
        self.encoding, self.name, self.form, self.old_mac = encoding, name, form, old_mac
        # Bytes that are not UTF-8 are handed on: the reader of the lines says what is wrong with them.
        self.errors = "surrogateescape" if encoding == "utf-8" else "strict"
        self.blocks = _Blocks(stream)
        self.text = io.TextIOWrapper(cast(Any, self.blocks), encoding, self.errors, "\r" if old_mac else "\n")

    def readline(self, size: int = -1, /) -> bytes:
        """The next line, or so many characters of it.

        Raises:
            DataError: it is not in this encoding.
        """
        try:
            line = self.text.readline(size)
        except UnicodeDecodeError as e:
            at = self.blocks.count - len(e.object) + e.start
            raise DataError(
                f"{self.name} is not {self.encoding}: byte 0x{e.object[e.start]:02x} at offset {at} ({e.reason})"
                + self.form.hint(": give another --encoding", ": save it in UTF-8")
            ) from None
        if self.old_mac and line.endswith("\r"):
            line = line[:-1] + "\n"
        return line.encode("utf-8", self.errors if self.errors != "strict" else "surrogatepass")

    def place(self) -> int:
        """How many bytes of the file have been read."""
        return self.blocks.place()

    def close(self) -> None:
        """Close the stream."""
        self.text.close()


class _Blocks(io.BufferedIOBase):
    """A stream as io's own classes want it; it counts the bytes that were read."""

    def __init__(self, stream: Bytes) -> None:
        self.stream, self.count = stream, 0

    def readable(self) -> bool:
        """It can be read."""
        return True

    def read1(self, size: int = -1, /) -> bytes:
        """So many bytes at most."""
        block = self.stream.read1(size)
        self.count += len(block)
        return block

    def place(self) -> int:
        """How many bytes of the file have been read."""
        packed = getattr(self.stream, "place", None)
        return self.count if packed is None else packed()

    def close(self) -> None:
        """Close the stream."""
        self.stream.close()
        super().close()


class Unpacked:
    """A gzipped file, read as if it were not.

    Args:
        file: open for reading bytes; closed by `close`.
        name: of the file, for errors.
    """

    def __init__(self, file: BinaryIO, name: str) -> None:
        self.file, self.name, self.content = file, name, gzip.GzipFile(fileobj=file)

    def readline(self, size: int = -1, /) -> bytes:
        """The next line, or so many bytes of it.

        Raises:
            DataError: the file is damaged, or ends too early.
        """
        try:
            return self.content.readline(size)
        except DAMAGE as e:
            raise self._damaged(e) from None

    def read1(self, size: int = -1, /) -> bytes:
        """So many bytes at most; errors as for `readline`."""
        try:
            return self.content.read1(size)
        except DAMAGE as e:
            raise self._damaged(e) from None

    def _damaged(self, error: Exception) -> DataError:
        return DataError(f"{self.name} cannot be read: it is not a whole .gz file ({error}): pack or fetch it again")

    def place(self) -> int:
        """How many bytes of the packed file have been read."""
        return self.file.tell()

    def close(self) -> None:
        """Close the file."""
        self.content.close()
        self.file.close()
