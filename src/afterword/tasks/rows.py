"""Rows of a data set: JSON lines or a table, each field checked as it is read."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from hashlib import file_digest
from pathlib import Path
from typing import Any

from ..errors import BadRow, DataError, MissingDataset
from ..files.read import ENDINGS, open_rows

Row = dict[str, Any]
Check = Callable[[Any], Any]
"""From a field's raw value to the value that is used; raises ValueError with what is wrong with it."""


class Source(ABC):
    """Where data sets come from: a `Folder`, or the `Hub`. A frozen value."""

    @abstractmethod
    def rows(self, name: str, fields: Mapping[str, Check], optional: Mapping[str, Check] | None = None) -> list[Row]:
        """All rows of a data set.

        Args:
            name: of the data set, relative and without an ending, as in "en/sts/sts12.test".
            fields: what every row must have, and what each value must be.
            optional: what it may have; None where it has not.

        Raises:
            MissingDataset: it is not there.
            BadRow: a row that cannot be read, or a field that is missing or wrong.
            DataError: it is corrupt, or without rows.
        """

    @abstractmethod
    def digest(self, name: str) -> str:
        """A hexadecimal hash of a data set's content: it changes when a row does; `name` and errors as for `rows`."""


@dataclass(frozen=True)
class Folder(Source):
    """A folder of data sets.

    Args:
        root: where it lies; files are named relative to it.
    """

    root: Path

    def find(self, name: str) -> Path:
        """The file of a data set.

        Args:
            name: relative, as in "en/sts/sts12.test"; with its ending, or with any of `ENDINGS`.

        Raises:
            MissingDataset: it is there under none of them.
        """
        for ending in ("", *ENDINGS):
            path = self.root / (name + ending)
            if path.is_file():
                return path
        raise MissingDataset(
            f"{self.root / name}{{{','.join(ENDINGS)}}} is not there: docs/evaluate.md says what goes where"
        )

    def rows(self, name: str, fields: Mapping[str, Check], optional: Mapping[str, Check] | None = None) -> list[Row]:
        """All rows of a data set, as `Source.rows` says."""
        return list(read_rows(self.find(name), fields, optional))

    def digest(self, name: str) -> str:
        """The SHA-256 of the file as it lies there."""
        with self.find(name).open("rb") as file:
            return file_digest(file, "sha256").hexdigest()


def read_rows(path: Path, fields: Mapping[str, Check], optional: Mapping[str, Check] | None = None) -> Iterator[Row]:
    """The rows of a file, checked.

    Args:
        path: a .jsonl or .csv file, perhaps gzipped, or a .parquet file.
        fields: what every row must have, and what each value must be.
        optional: what it may have; None where it has not.

    Yields:
        Per row, these fields; others are left out.

    Raises:
        MissingDataset: no such file.
        BadRow: a line that cannot be read, or a field that is missing or wrong.
        DataError: a file of another kind, corrupt, or without rows.
    """
    empty = True
    with closing(open_rows(path, next(iter(fields)))) as reader:
        for record in reader:
            empty = False
            if record.fields is None:
                raise BadRow(path, record.line, record.problem or "cannot be read")
            yield checked(path, record.line, record.fields, fields, optional or {})
    if empty:
        raise DataError(f"{path} has no rows")


def checked(
    path: object, line: int, found: Mapping[str, Any], fields: Mapping[str, Check], optional: Mapping[str, Check]
) -> Row:
    """The fields of one row, each as its check gives it; arguments and errors as for `read_rows`."""
    row: Row = {}
    for name, check in {**fields, **optional}.items():
        if name not in found:
            if name in optional:
                row[name] = None
                continue
            raise BadRow(
                path, line, f"has no field {name!r}, only {', '.join(found) or 'none'}: is it of another task?"
            )
        try:
            row[name] = check(found[name])
        except ValueError as e:
            raise BadRow(path, line, f"{name!r} {e}") from None
    return row


def text(value: Any) -> str:
    """Any string; some data sets hold empty ones."""
    if not isinstance(value, str):
        raise ValueError(f"is {value!r:.40}, not a string")
    return value


def number(value: Any) -> float:
    """A finite number, or a string that spells one.

    >>> number("3.8")
    3.8
    """
    try:
        found = float(value) if not isinstance(value, bool | None) else math.nan
    except (TypeError, ValueError):
        found = math.nan
    if not math.isfinite(found):
        raise ValueError(f"is {value!r:.40}, not a number")
    return found


def label(value: Any) -> str:
    """A class: a string or a whole number, as a string."""
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise ValueError(f"is {value!r:.40}, not a label")
    return str(value)


def texts(value: Any) -> list[str]:
    """A list of strings that is not empty."""
    if not isinstance(value, list) or not value or not all(isinstance(v, str) for v in value):
        raise ValueError(f"is {value!r:.40}, not a list of strings")
    return value
