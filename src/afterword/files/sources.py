"""Text files as bytes: checked, opened, and unpacked if gzipped."""

from __future__ import annotations

import codecs
import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from ..errors import DataError, MissingDataset
from ..spelling import did_you_mean

COMMON = (
    "utf-8 utf-16 utf-16-le utf-16-be cp1252 latin-1 cp1250 cp1251 mac-roman gb18030 gbk big5 shift-jis euc-kr".split()
)


def check_file(path: Path) -> None:
    """Raise a MissingDataset or a DataError if there is no such file."""
    if path.is_dir():
        raise DataError(f"{path} is a folder: give a file")
    if not path.exists():
        raise MissingDataset(f"{path} does not exist")


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """The bytes of a file, unpacked if its name ends in .gz; closed if the block ends with an error.

    Raises:
        MissingDataset: there is no such file.
        DataError: it cannot be read.
    """
    check_file(path)
    try:
        file: BinaryIO | gzip.GzipFile = gzip.GzipFile(path) if path.suffix.lower() == ".gz" else path.open("rb")
    except OSError as e:
        raise DataError(f"{path} cannot be read: {e.strerror or e}") from None
    try:
        yield cast(BinaryIO, file)
    except BaseException:
        file.close()
        raise


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
    except (LookupError, ValueError):
        raise DataError(
            f"{name!r} is not an encoding{did_you_mean(name, COMMON)}: give a name such as {', '.join(COMMON[4:10])}"
        ) from None
    return name
