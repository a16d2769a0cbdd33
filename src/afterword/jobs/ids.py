"""Whether the ids of a job name its rows: how many are missing, and how many are those of other rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..errors import plural
from .job import Job
from .names import PROBLEM, ROW

ID = "id"  # the column of a shard


class IdCounts(NamedTuple):
    """Rows with a vector whose ids do not name them: those without an id, and those with the id of an earlier row."""

    missing: int
    repeated: int

    def __str__(self) -> str:
        """In words; "" if each id names its row.

        >>> str(IdCounts(1, 2)), str(IdCounts(0, 1))
        ('1 row has no id, 2 rows have the id of an earlier row', '1 row has the id of an earlier row')
        """
        told = ((self.missing, "no id"), (self.repeated, "the id of an earlier row"))
        return ", ".join(f"{plural(n, 'row')} {'has' if n == 1 else 'have'} {what}" for n, what in told if n)


def count_ids(job: Job) -> IdCounts:
    """Count the ids of a job that name no row, or several; 8 bytes a row are held, and thrice that at the end.

    Rejected rows do not count, and the chunks of a row count once. Ids are compared by 64 bits of their hashes: among
    a million that differ, two are taken as equal with a probability of 3e-8.

    Args:
        job: with ids, all of whose shards are done.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    missing, hashes = 0, [np.empty(0, np.int64)]
    for part in job.parts():
        table = pq.read_table(part, columns=[ROW, ID, PROBLEM])
        rows = table[ROW].to_numpy()
        first = np.diff(rows, prepend=-1) != 0  # of its chunks
        ids = table[ID].filter(pa.array(first & ~np.asarray(table[PROBLEM].is_valid()))).to_pylist()
        there = [id for id in ids if id not in (None, "")]
        missing += len(ids) - len(there)
        hashes.append(np.fromiter((hash(str(id)) for id in there), np.int64, len(there)))
    every = np.concatenate(hashes)
    return IdCounts(missing, len(every) - len(np.unique(every)))
