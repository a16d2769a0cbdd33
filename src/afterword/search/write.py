"""Write rows into an index by merges that can be repeated; a first build is made aside, and appears when it is done."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import DataError, ModelError
from ..files.atomic import lock_folder
from ..jobs.rows import Block, Item, kept_columns
from .index import JOB, LOCK, TABLE, VECTOR, Index, IndexInfo, exists, schema_of, written

if TYPE_CHECKING:
    from pyarrow import Field, RecordBatch, Schema

REJECTS = "rejects.jsonl"
OURS = {LOCK, JOB, REJECTS, f"{TABLE}.lance"}
"""What the folder of an index holds before its first build has ended."""
MERGED = 1024  # rows of one merge
COLUMNS = {
    "id": "text", "doc": "text", "chunk": "number", "start": "number", "end": "number", "text": "text", "hash": "text",
}  # fmt: skip
"""The type of each column beside the vector, as an `Output` has it."""


def check_folder(folder: Path) -> None:
    """Refuse a folder that holds something else than an index.

    Raises:
        DataError: it holds something else, or is no folder.
    """
    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder} is a file: give the name of a folder")
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    if not exists(folder) and {name for name in names if not name.startswith(".afterword-")} - OURS:
        raise DataError(f"{folder} is not an index: give the name of a new folder")


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Hold the lock of an index: one process writes at a time. A folder that is made for it goes if it stays empty.

    Raises:
        DataError: another process writes, which is named; or the folder cannot be written.
    """
    made = not folder.exists()
    try:
        with lock_folder(folder / LOCK, "writing"):
            yield
    except ModelError as e:
        raise DataError(str(e)) from None
    except PermissionError as e:
        raise DataError(f"{folder} cannot be written: {e.strerror}") from None
    finally:
        if made:
            with suppress(OSError):
                folder.rmdir()


def columns_of(items: Sequence[Item], kinds: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The columns of placed rows beside the vectors.

    Args:
        items: rows of `NewRows.new`; a rejected one may have no place.
        kinds: the types of the kept columns.
    """
    own = {
        name: [item.text if name == "text" else getattr(item.beside, name, None) for item in items] for name in COLUMNS
    }
    return {**own, **kept_columns(items, kinds, parquet=True)}


def create(folder: Path, info: IndexInfo, kinds: Mapping[str, Any]) -> Index:
    """Make an index without rows.

    Args:
        folder: of the index.
        info: what its rows will be made by.
        kinds: the types of the kept columns, as `Reader.kinds` has them.

    Raises:
        DataError: the folder cannot be written.
    """
    import pyarrow as pa

    kept = [pa.field(name, pa.string() if isinstance(kind, str) else kind) for name, kind in kinds.items()]
    return Index.create(folder, schema_of(info, kept).empty_table().to_reader(), info)


def publish(index: Index, folder: Path) -> Index:
    """Give a first build its place, at once; returns the index there."""
    if index.folder == folder:
        return index
    with written(folder):
        os.replace(index.folder / f"{TABLE}.lance", folder / f"{TABLE}.lance")
    shutil.rmtree(index.folder, ignore_errors=True)
    return Index.open(folder)


def batch_of(block: Block, schema: Schema) -> RecordBatch:
    """The rows of a block that have a vector, as rows of an index.

    Raises:
        DataError: a kept value does not fit its column.
    """
    import numpy as np
    import pyarrow as pa

    (vectors,) = block.vectors.values()
    good = np.logical_not(np.isnan(vectors).any(axis=1))
    flat = pa.array(vectors[good].astype(np.float32).reshape(-1))
    arrays = [
        pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1])
        if field.name == VECTOR
        else column(block.columns[field.name], field).filter(pa.array(good))
        for field in schema
    ]
    return pa.record_batch(arrays, schema=schema)


def column(values: Sequence[Any], field: Field) -> Any:
    """Values as Arrow has them.

    Raises:
        DataError: one does not fit the column.
    """
    import pyarrow as pa

    try:
        return pa.array(values, field.type)
    except (pa.ArrowException, OverflowError) as e:
        told = str(e).splitlines()[0]
        raise DataError(f"the column {field.name!r} is of type {field.type} in the index: {told:.200}") from None


class Merges:
    """Merges rows into an index by their ids.

    Args:
        index: the index.
        rows: of one merge, which are what a kill loses.
    """

    def __init__(self, index: Index, rows: int = MERGED) -> None:
        self.index, self.rows, self._held = index, rows, list[Any]()

    def add(self, block: Block) -> None:
        """Hold rows, and merge them when there are enough."""
        self._held.append(batch_of(block, self.index.table.schema))
        if sum(map(len, self._held)) >= self.rows:
            self.flush()

    def flush(self) -> None:
        """Merge what is held."""
        import pyarrow as pa

        held = pa.Table.from_batches(self._held) if self._held else ()
        self._held = []
        if len(held):
            merge(self.index, held)


def merge(index: Index, rows: Any, insert: bool = True) -> None:
    """Merge rows into an index: a row whose id is there replaces it. Doing it twice is doing it once.

    Args:
        index: the index.
        rows: the rows, as Arrow has them.
        insert: add rows with new ids; without it, the rows may leave out columns, which stay as they are.

    Raises:
        DataError: the index cannot be written.
    """
    with written(index.folder):
        merging = index.table.merge_insert("id").when_matched_update_all()
        (merging.when_not_matched_insert_all() if insert else merging).execute(rows)
