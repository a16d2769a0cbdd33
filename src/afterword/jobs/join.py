"""Join the shards of a job into one file, in the order of the input."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError, JobError
from ..files.atomic import atomic_file
from .job import Job
from .names import PROBLEM
from .output_file import check_place
from .vectors_info import to_notes
from .write_vectors import Array, Block, JsonLinesSink, NpySink, ParquetSink, Sink, kind_of


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
    infos = job.infos
    if kind == "npy" and len(infos) > 1:
        raise InputError(f"an .npy file holds one vector a row, and {len(infos)} methods were given: join to .parquet")
    check_place(path)
    reader = job.read([name for name in job.read().schema.names if name != PROBLEM])
    with (
        atomic_file(path) as file,
        _sink(file, kind, reader.schema, list(infos), to_notes(infos, result.unknown)) as sink,
    ):
        for batch in reader:
            sink.write(_block(batch, list(infos)))
    return result.rows


def _sink(file: Any, kind: str, schema: Any, vectors: list[str], notes: dict[str, str]) -> Sink:
    empty = {name: _rows(schema.empty_table().column(name).combine_chunks()) for name in vectors}
    if kind == "jsonl":
        return JsonLinesSink(file)
    if kind == "npy":
        (rows,) = empty.values()
        return NpySink(file, rows.shape[1], rows.dtype)
    return ParquetSink(file, {field.name: field.type for field in schema if field.name not in vectors}, empty, notes)


def _block(batch: Any, vectors: list[str]) -> Block:
    columns = {name: batch.column(name).to_pylist() for name in batch.schema.names if name not in vectors}
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
