"""Check a job: whether all shards are done, and whether a sample of them has the vectors that its encoder makes."""

from __future__ import annotations

import io
from random import Random
from typing import Any

import numpy as np

from .job import Job
from .shard import ShardWorker, part, parts_in

TOLERANCE = 1e-5
"""The largest difference of a component, as a share of the shard's largest one."""


def verify(job: Job, worker: ShardWorker, count: int, seed: int = 0) -> tuple[list[int], list[int]]:
    """Embed some finished shards again, and compare them within `TOLERANCE`.

    Args:
        job: the job; its files are not touched.
        worker: what its shards were embedded by.
        count: how many shards, drawn at random.
        seed: of the draw.

    Returns:
        The numbers of the shards that were embedded again, and of those among them that differ.

    Raises:
        JobError: the encoder or the input differs.
    """
    import pyarrow.parquet as pq

    done = list(parts_in(job.folder))
    numbers = sorted(Random(seed).sample(done, min(count, len(done))))
    if not numbers:
        return [], []
    embed = worker.start()
    fresh = {number: pq.read_table(io.BytesIO(embed.content(number)[0])) for number in numbers}
    return numbers, [n for n in numbers if not _alike(pq.read_table(part(job.folder, n)), fresh[n])]


def _alike(before: Any, now: Any) -> bool:
    vectors = [field.name for field in now.schema if hasattr(field.type, "list_size")]
    if before.schema.names != now.schema.names or not before.drop(vectors).equals(now.drop(vectors)):
        return False
    for name in vectors:
        a, b = (table[name].combine_chunks() for table in (before, now))
        if not a.is_valid().equals(b.is_valid()) or a.type != b.type:
            return False
        x, y = (column.drop_null().flatten().to_numpy(zero_copy_only=False) for column in (a, b))
        if not np.allclose(x, y, rtol=0, atol=TOLERANCE * np.abs(y).max(initial=0)):
            return False
    return True
