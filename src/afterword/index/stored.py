"""Rows of an index from stored vectors: a .parquet file that ``embed`` wrote, or the parts of a finished job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..errors import DataError
from ..jobs.items import Item
from ..jobs.job import Job
from ..jobs.vectors_info import VectorsInfo, read_info
from ..jobs.write_vectors import Block
from .index import VECTOR
from .rows import NewRows
from .write import columns_of

READ = 4096  # rows that are read at a time


class StoredRows:
    """Stored texts and vectors.

    Args:
        path: a .parquet file, or the folder of a job.

    Attributes:
        info: what the vectors were made by.
        missing: the number of rows without a vector that were read.

    Raises:
        DataError: there are no such vectors; the job has not ended; the file holds chunks, or vectors of several
            methods.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.parts, self.missing = path, parts_of(path), 0
        infos = read_info(self.parts[0])
        if list(infos) != [VECTOR]:
            raise DataError(f"{path} holds vectors of {len(infos)} methods, {', '.join(infos)}: embed by one")
        self.info: VectorsInfo = infos[VECTOR]
        if "text" not in self._schema.names or "chunk" in self._schema.names:
            raise DataError(f"{path} does not hold whole texts with their vectors: give the texts by --input")

    @property
    def _schema(self) -> Any:
        import pyarrow.parquet as pq

        return pq.read_schema(self.parts[0])

    def kinds(self, names: list[str]) -> dict[str, Any]:
        """The types of columns.

        Raises:
            DataError: there is no such column.
        """
        schema = self._schema
        for name in names:
            if name not in schema.names:
                raise DataError(f"{self.path} has no column {name!r}: it has {', '.join(schema.names)}")
        return {name: schema.field(name).type for name in names}

    def blocks(self, rows: NewRows, names: list[str], kinds: Mapping[str, Any]) -> Iterator[tuple[list[Item], Block]]:
        """The rows that are new to an index, block by block, with their vectors; a rejected one has none.

        Args:
            rows: takes the rows.
            names: the columns that `rows` needs, and the kept ones.
            kinds: the types of the kept columns.
        """
        import pyarrow as pa

        for first, batch in self._batches(["text", *names, VECTOR]):
            columns = {name: batch[name].to_pylist() for name in ["text", *names]}
            there = batch[VECTOR].is_valid().to_pylist()
            self.missing += there.count(False)
            items = [
                Item(first + i, text, kept={name: columns[name][i] for name in names})
                for i, text in enumerate(columns["text"])
                if there[i]
            ]
            found = list(rows.new(items))
            good = [item for item in found if item.problem is None]
            rejected = [item for item in found if item.problem is not None]
            lists = batch[VECTOR].take(pa.array([item.line - first for item in good], pa.int64()))
            vectors = lists.flatten().to_numpy(zero_copy_only=False).reshape(-1, lists.type.list_size)
            yield rejected, Block(columns_of(good, kinds), {VECTOR: vectors})

    def _batches(self, columns: list[str]) -> Iterator[tuple[int, Any]]:
        import pyarrow.parquet as pq

        start = 1
        for part in self.parts:
            with pq.ParquetFile(part, pre_buffer=False) as file:
                for batch in file.iter_batches(READ, columns=list(dict.fromkeys(columns))):
                    yield start, batch
                    start += batch.num_rows


def parts_of(path: Path) -> list[Path]:
    """The files of vectors: the file itself, or the parts of a finished job in their order.

    Raises:
        DataError: there is no such file or job, or the job has not ended or is damaged.
    """
    if not path.is_dir():
        return [path]
    job = Job.open(path)
    if not job.complete:
        raise DataError(f"{path} is no finished job: the command that began it goes on with it")
    job.check_whole()
    return job.parts()
