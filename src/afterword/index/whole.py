"""A write of an index is whole, or undone.

LanceDB (0.40) loses the error of the last bytes that it writes to a file: on a full disk it may commit a version whose
newest file was cut short, and which nobody can read. Such a file lacks its footer, so that any row of it shows it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import DataError

if TYPE_CHECKING:
    from .index import Index

TRIED = 100  # earlier versions
REFUSED = (OSError, RuntimeError, ValueError)
"""What LanceDB raises where a file cannot be read or written."""
CODE = re.compile(r"\(os error (\d+)\)")
PLACE = re.compile(r",? /\S+:\d+:\d+")  # in the source of LanceDB
SHORT = "the end of a file is missing, as on a full disk"


def readable(table: Any) -> bool:
    """Whether the files of a table are whole: those of its rows, of what is deleted, and of its indexes."""
    try:
        ids = table.search().with_row_id(True).select(["_rowid"]).to_arrow()["_rowid"].to_numpy()
        if len(ids):
            files = ids >> np.uint64(32)
            first = np.flatnonzero(np.diff(files, prepend=files[:1] + np.uint64(1)))
            table.take_offsets(first.tolist()).select(["id"]).to_arrow()
        for found in table.list_indices():
            _search(table, found.columns[0]).limit(1).to_arrow()
    except REFUSED:
        return False
    return True


def _search(table: Any, column: str) -> Any:
    width = getattr(table.schema.field(column).type, "list_size", None)
    return table.search("a", query_type="fts") if width is None else table.search([1.0] * width, column)


@contextmanager
def whole(index: Index) -> Iterator[None]:
    """Write to an index: where the end of a file is missing then, the index goes back to what it was.

    Raises:
        DataError: the end of a file is missing.
    """
    try:
        yield
    except Exception:
        if not readable(index.table):
            undo(index.table)
        raise
    if not readable(index.table):
        undo(index.table)
        raise DataError(f"{index.folder} cannot be written: {SHORT}; the rows that it had are kept")


@contextmanager
def written(folder: Path) -> Iterator[None]:
    """Tell of a write that LanceDB refuses in one plain line.

    Raises:
        DataError: the index cannot be written.
    """
    try:
        yield
    except REFUSED as e:
        raise DataError(f"{folder} cannot be written: {reason_of(e)}") from None


def reason_of(error: Exception) -> str:
    """Why LanceDB could not write, without places in its source."""
    told = str(error).splitlines()[0] if str(error) else type(error).__name__
    code = CODE.search(told)
    return os.strerror(int(code[1])) if code else PLACE.sub("", told)[:200]


def undo(table: Any) -> bool:
    """Go back to the newest earlier version that can be read; returns whether there is one."""
    versions = sorted((found["version"] for found in table.list_versions()), reverse=True)
    for version in versions[1 : 1 + TRIED]:
        with suppress(*REFUSED):
            table.checkout(version)
            if readable(table):
                table.restore()
                return True
    with suppress(*REFUSED):
        table.checkout_latest()
    return False
