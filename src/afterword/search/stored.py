"""Rows of an index from stored vectors: a .parquet file that ``embed`` wrote, or the parts of a finished job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import DataError
from ..jobs.job import Job
from ..jobs.rows import Block, Item
from ..jobs.stored import VectorsInfo, read_info, read_unknown
from .index import VECTOR, exists
from .rows import NewRows
from .write import columns_of

READ = 4096  # rows that are read at a time


class Reject(NamedTuple):
    """A row that is not taken: its number from 0, its line in the file of texts if a job has listed it, the reason."""

    row: int
    line: int | None
    reason: str


class StoredRows:
    """Stored texts and vectors.

    Args:
        path: a .parquet file, or the folder of a job.

    Attributes:
        info: what the vectors were made by.
        id: the column of ids: that of a job's input, which the job writes as "id", or "id" of a file; or None.
        unknown: how many texts are mostly unknown to the model; 0 where that was not written down.
        without: the rows of a job without a vector, as it lists them, by their numbers.

    Raises:
        DataError: there are no such vectors; the job has not ended; the file holds chunks, or vectors of several
            methods.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.parts = path, parts_of(path)
        job = Job.open(path) if path.is_dir() else None
        self.unknown = read_unknown(path) if job is None else job.result().unknown
        self.without = {} if job is None else {row["row"]: row for row in job.rejects()}
        own_id = "id" if "id" in self._schema.names else None
        self.id = own_id if job is None else job.id
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
        """The types of columns; the ids of a job go by the name of their column in its input too.

        Raises:
            DataError: there is no such column.
        """
        schema = self._schema
        for name in names:
            if self._own(name) not in schema.names:
                raise DataError(f"{self.path} has no column {name!r}: it has {', '.join(schema.names)}")
        return {name: schema.field(self._own(name)).type for name in names}

    def kept(self, id: str | None) -> list[str]:
        """The columns that `embed --keep` wrote, without that of the ids."""
        known = {"row", "line", "problem", "id", "text", VECTOR, id}
        return [name for name in self._schema.names if name not in known]

    def _own(self, name: str) -> str:
        return "id" if name == self.id and name not in self._schema.names else name

    def blocks(self, rows: NewRows, names: list[str], kinds: Mapping[str, Any]) -> Iterator[tuple[list[Reject], Block]]:
        """The rows that are new to an index, block by block, with their vectors; and those that are rejected.

        Args:
            rows: takes the rows.
            names: the columns that `rows` needs, and the kept ones.
            kinds: the types of the kept columns.
        """
        import pyarrow as pa

        own = {name: self._own(name) for name in names}
        for first, batch in self._batches(["text", *own.values(), VECTOR]):
            texts, columns = batch["text"].to_pylist(), {name: batch[own[name]].to_pylist() for name in names}
            there = batch[VECTOR].is_valid().to_pylist()
            items = [
                Item(
                    first + i, text, None if there[i] else self._listed(first + i).reason,
                    kept={name: columns[name][i] for name in names},
                )
                for i, text in enumerate(texts)
            ]  # fmt: skip
            found = list(rows.new(items))
            good = [item for item in found if item.problem is None]
            rejected = [self._listed(item.line, item.problem) for item in found if item.problem is not None]
            lists = batch[VECTOR].take(pa.array([item.line - first for item in good], pa.int64()))
            vectors = lists.flatten().to_numpy(zero_copy_only=False).reshape(-1, lists.type.list_size)
            yield rejected, Block(columns_of(good, kinds), {VECTOR: vectors})

    def _listed(self, number: int, problem: str | None = None) -> Reject:
        """A rejected row with a number from 1: as the job has listed it, where it did."""
        said = self.without.get(number - 1)
        if said is not None:
            return Reject(said["row"], said["line"], said["reason"])
        return Reject(number - 1, None, problem or "has no vector")

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
    if exists(path):
        raise DataError(f"{path} is an index, not a job: give the texts by --input")
    job = Job.open(path)
    if not job.complete:
        raise DataError(f"{path} is no finished job: the command that began it goes on with it")
    return job.parts()
