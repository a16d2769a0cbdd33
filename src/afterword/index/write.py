"""Write rows into an index: all of a first build in one commit, those of an update by merges that can be repeated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import DataError, ModelError
from ..files.atomic import temporary
from ..files.folder_lock import lock_folder
from ..jobs.items import Item, kept_columns
from ..jobs.rejects import Rejects
from ..jobs.store import Store, Totals
from ..jobs.write_vectors import Block
from .index import JOB, LOCK, TABLE, VECTOR, Index, exists, schema_of, written
from .info import IndexInfo
from .tune import SAMPLE, language_of

if TYPE_CHECKING:
    from pyarrow import Field, RecordBatch, RecordBatchReader, Schema

REJECTS = "rejects.jsonl"
OURS = {LOCK, JOB, REJECTS, temporary(Path(REJECTS)).name, f"{TABLE}.lance"}
"""What the folder of an index holds before its first build has ended."""
MERGED = 65536  # rows of one merge
READ = 4096  # rows that are read of a file at a time
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
    if folder.is_dir() and not exists(folder) and {path.name for path in folder.iterdir()} - OURS:
        raise DataError(f"{folder} is no index: give the name of a new folder")


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


def create_from(folder: Path, path: Path) -> Index:
    """Make an index of the rows with a vector of a .parquet file, in one commit.

    Args:
        folder: of the index.
        path: a file with the columns of an index, and its `IndexInfo` as metadata.

    Raises:
        DataError: no row has a vector, or the folder cannot be written.
    """
    import pyarrow.parquet as pq

    found = pq.read_schema(path)
    info = IndexInfo.from_schema(found.metadata)
    info = replace(info, language=info.language or language_of(_first_texts(path)))
    kept = [field for field in found if field.name not in {*COLUMNS, VECTOR}]
    return Index.create(folder, _reader(path, info, kept), info)


def _first_texts(path: Path) -> list[str]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(path, pre_buffer=False) as file:
        return next(
            (batch["text"].drop_null().to_pylist() for batch in file.iter_batches(SAMPLE, columns=["text"])), []
        )


def _reader(path: Path, info: IndexInfo, kept: list[Field]) -> RecordBatchReader:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = schema_of(info, kept)

    def rows() -> Iterator[RecordBatch]:
        with pq.ParquetFile(path, pre_buffer=False) as file:
            for batch in file.iter_batches(READ):
                whole = batch.filter(batch[VECTOR].is_valid())
                yield pa.record_batch([whole[field.name].cast(field.type) for field in schema], schema=schema)

    return pa.RecordBatchReader.from_batches(schema, rows())


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


class Merges(Store):
    """Merges rows into an index by their ids.

    Args:
        index: the index.
        rejects: the list of rows without a vector.
        numbers: of the rows, among all rows of the input.
    """

    def __init__(self, index: Index, rejects: Rejects, numbers: Sequence[int] = ()) -> None:
        self.index, self.rejects, self.numbers = index, rejects, numbers
        self.rows = 0
        self._held: list[Any] = []

    def add(self, number: int, first: int, items: Sequence[Item], block: Block) -> None:
        """Hold a window; merge when enough rows are held."""
        for row, item in enumerate(items, first):
            if item.problem is not None:
                self.rejects.add(self.numbers[row], item.line, item.problem)
        self.rows += len(items)
        self._held.append(batch_of(block, self.index.table.schema))
        if sum(map(len, self._held)) >= MERGED:
            self._merge()

    def _merge(self) -> None:
        import pyarrow as pa

        held = pa.Table.from_batches(self._held) if self._held else ()
        self._held = []
        if len(held):
            merge(self.index, held)

    def finish(self, count: int) -> Totals:
        """Merge what is held."""
        self._merge()
        return Totals(self.rows, self.rejects.count)

    def kept(self) -> str:
        """What was merged stays, and is not embedded again."""
        return "rows that were merged are kept; the same command goes on from there"


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
