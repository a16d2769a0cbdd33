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
"""Converts a field's raw value to the value that is used; raises a ValueError that describes an invalid one."""


class Source(ABC):
    """A source of data sets: a `Folder`, or the `Hub`. A frozen dataclass."""

    @abstractmethod
    def rows(self, name: str, fields: Mapping[str, Check], optional: Mapping[str, Check] | None = None) -> list[Row]:
        """All rows of a data set.

        Args:
            name: of the data set, relative and without an ending, as in "en/sts/sts12.test".
            fields: the required fields, with a check for each.
            optional: the optional fields, with a check for each; a missing one is None.

        Raises:
            MissingDataset: there is no such data set.
            BadRow: a row cannot be read, or a field is missing or invalid.
            DataError: the data set is corrupt, or has no rows.
        """

    @abstractmethod
    def digest(self, name: str) -> str:
        """A hexadecimal hash of a data set's content: it changes when a row does; `name` and errors as for `rows`."""


def page(name: str) -> Path:
    """A page of the documentation: in an installed package docs/ is part of it, in a clone it is at the root.

    >>> page("evaluate.md").is_file()
    True
    """
    package = Path(__file__).parent.parent
    installed = package / "docs" / name
    return installed if installed.exists() else package.parent.parent / "docs" / name


@dataclass(frozen=True)
class Folder(Source):
    """A folder of data sets.

    Args:
        root: path of the folder; files are named relative to it.
    """

    root: Path

    def find(self, name: str) -> Path:
        """The file of a data set.

        Args:
            name: relative, as in "en/sts/sts12.test"; with its ending, or with any of `ENDINGS`.

        Raises:
            MissingDataset: there is no file with the name and one of these endings.
        """
        for ending in ("", *ENDINGS):
            path = self.root / (name + ending)
            if path.is_file():
                return path
        raise MissingDataset(
            f"{self.root / name}{{{','.join(ENDINGS)}}} does not exist: {page('evaluate.md')} says what goes where"
        )

    def rows(self, name: str, fields: Mapping[str, Check], optional: Mapping[str, Check] | None = None) -> list[Row]:
        """All rows of a data set, checked as in `Source.rows`."""
        return list(read_rows(self.find(name), fields, optional))

    def digest(self, name: str) -> str:
        """The SHA-256 of the file."""
        with self.find(name).open("rb") as file:
            return file_digest(file, "sha256").hexdigest()


def read_rows(path: Path, fields: Mapping[str, Check], optional: Mapping[str, Check] | None = None) -> Iterator[Row]:
    """Read and check the rows of a file.

    Args:
        path: a .jsonl or .csv file, also gzipped, or a .parquet file.
        fields: the required fields, with a check for each.
        optional: the optional fields, with a check for each; a missing one is None.

    Yields:
        The fields of each row; other fields are ignored.

    Raises:
        MissingDataset: there is no such file.
        BadRow: a line cannot be read, or a field is missing or invalid.
        DataError: the file has another format, is corrupt, or has no rows.
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
    path: object, line: int, raw: Mapping[str, Any], fields: Mapping[str, Check], optional: Mapping[str, Check]
) -> Row:
    """The fields of one row, each converted by its check; arguments and errors as for `read_rows`."""
    row: Row = {}
    for name, check in {**fields, **optional}.items():
        if name not in raw:
            if name in optional:
                row[name] = None
                continue
            raise BadRow(path, line, f"has no field {name!r}, only {', '.join(map(str, raw)) or 'none'}")
        try:
            row[name] = check(raw[name])
        except ValueError as e:
            raise BadRow(path, line, f"{name!r} {e}") from None
    return row


def text(value: Any) -> str:
    """Check for a string, which may be empty."""
    if not isinstance(value, str):
        raise ValueError(f"is {value!r:.40}, not a string")
    return value


def number(value: Any) -> float:
    """Check for a finite number, or a string that spells one.

    >>> number("3.8")
    3.8
    """
    try:
        result = float(value) if not isinstance(value, bool | None) else math.nan
    except (TypeError, ValueError):
        result = math.nan
    if not math.isfinite(result):
        raise ValueError(f"is {value!r:.40}, not a number")
    return result


def label(value: Any) -> str:
    """Check for a class label: a string or a whole number, returned as a string."""
    if isinstance(value, bool) or not isinstance(value, str | int) or not str(value).strip():
        raise ValueError(f"is {value!r:.40}, not a label")
    return str(value)


def texts(value: Any) -> list[str]:
    """Check for a list of strings that is not empty."""
    if not isinstance(value, list) or not value or not all(isinstance(v, str) for v in value):
        raise ValueError(f"is {value!r:.40}, not a list of strings")
    return value
