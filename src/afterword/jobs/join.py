"""Join the shards of a job into one file, in the order of the input."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ..errors import InputError, JobError
from ..files.atomic import atomic_file
from ..files.parquet import value_of
from .items import as_json
from .job import Job
from .names import PROBLEM
from .rejects import reject_line
from .vectors_info import to_notes
from .write_vectors import Array, Block, JsonLinesSink, NpySink, kind_of


def join(job: Job, path: Path, *, overwrite: bool = False) -> int:
    """Write all rows of a job to one .parquet, .jsonl or .npy file; a row without a vector is null there, or NaN.

    Args:
        job: the job; all its shards are done.
        path: the file.
        overwrite: a file that exists is replaced.

    Returns:
        The number of rows.

    Raises:
        JobError: a shard is not done.
        InputError: the file exists, or would be in the job's folder; an .npy file would need several vectors a row.
    """
    kind = kind_of(path)
    if Path(os.path.realpath(path)).is_relative_to(os.path.realpath(job.folder)):
        raise InputError(f"{path} would be a file of the job itself: choose a place outside {job.folder}")
    result = job.result()
    if not result.complete:
        left = len(job.plan) - result.shards
        raise JobError(f"{left} of {len(job.plan)} shards of {job.folder} are not done: give its command again")
    if path.exists() and not overwrite:
        raise InputError(f"{path} exists: choose another name, or --overwrite")
    if kind == "npy" and len(job.infos) > 1:
        raise InputError(
            f"an .npy file holds one vector a row, and {len(job.infos)} methods were given: join to .parquet"
        )
    with atomic_file(path) as file:
        return write_rows(job, file, kind, PROBLEM)


def write_rows(
    job: Job,
    file: BinaryIO,
    kind: str,
    problem: str,
    exact: Sequence[str] = (),
    reject: Callable[[bytes], object] = lambda _: None,
) -> int:
    """Write the rows of all shards to an open file; returns their number.

    Args:
        job: with all its shards.
        file: open for writing bytes.
        kind: its format.
        problem: the column that says why a row has no vector, which is left out.
        exact: columns that hold JSON.
        reject: called with a line for each row without a vector, as `reject_line` has it.
    """
    reader, infos, rows = job.read(), job.infos, 0
    schema = reader.schema.remove(reader.schema.get_field_index(problem)).with_metadata(
        to_notes(infos, job.result().unknown)
    )
    with _sink(file, kind, schema, list(infos)) as write:
        for batch in reader:
            for row, why in enumerate(batch.column(problem).to_pylist(), rows):
                if why is not None:
                    reject(reject_line(row, why["line"], why["reason"]))
            rows += len(batch)
            write(batch.select(schema.names), exact)
    return rows


@contextmanager
def _sink(file: BinaryIO, kind: str, schema: Any, vectors: list[str]) -> Iterator[Callable[[Any, Sequence[str]], None]]:
    """What writes a batch of rows."""
    if kind == "parquet":
        import pyarrow.parquet as pq

        with pq.ParquetWriter(file, schema, compression="snappy") as writer:
            yield lambda batch, _: writer.write_batch(batch) if len(batch) else None
        return
    empty = _rows(schema.empty_table().column(vectors[0]).combine_chunks())
    with JsonLinesSink(file) if kind == "jsonl" else NpySink(file, empty.shape[1], empty.dtype) as sink:
        yield lambda batch, exact: sink.write(_block(batch, vectors, exact if kind == "jsonl" else None))


def _block(batch: Any, vectors: list[str], exact: Sequence[str] | None) -> Block:
    """Rows as Python's values; with ``exact`` None, their vectors alone."""
    columns = {
        name: [json.loads(value) if name in exact else as_json(value) for value in map(value_of, batch.column(name))]
        for name in batch.schema.names
        if exact is not None and name not in vectors
    }
    return Block(columns, {name: _rows(batch.column(name)) for name in vectors})


def _rows(lists: Any) -> Array:
    """A column of vectors (n, D), NaN where there is none."""
    width = lists.type.list_size
    valid = np.asarray(lists.is_valid(), bool)
    values = lists.filter(lists.is_valid()).flatten().to_numpy(zero_copy_only=False).reshape(-1, width)
    rows = np.full(
        (len(lists), width), np.nan, values.dtype if len(values) else lists.type.value_type.to_pandas_dtype()
    )
    rows[valid] = values
    return rows
