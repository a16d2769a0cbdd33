"""Shards that are embedded again."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from afterword.jobs.job import Job, part
from afterword.jobs.recipe import JobRecipe, Load
from afterword.jobs.rows import Inputs
from afterword.jobs.run import run_job
from afterword.jobs.shard import ShardWorker, verify


def test_a_shard_with_wrong_vectors_is_found(llama: Path, tmp_path: Path) -> None:
    file = tmp_path / "in.txt"
    file.write_text("one\ntwo\n\nfour\n")
    worker = ShardWorker(tmp_path / "job", Inputs((file,)), JobRecipe(Load(str(llama))), {"text": "text"}, "llama", 2)
    job = Job.create(worker, {}, 2)
    assert verify(job, worker, 9) == ([], [])
    run_job(job, worker)
    assert verify(job, worker, 9) == ([0, 1], []) and len(verify(job, worker, 1)[0]) == 1
    table = pq.read_table(part(job.folder, 0))
    for change, differs in ((1e-7, []), (1e-3, [0])):
        values = table["vector"].combine_chunks().flatten().to_numpy() * np.float32(1 + change)
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(values), table["vector"].type.list_size)
        at = table.schema.get_field_index("vector")
        pq.write_table(table.set_column(at, table.schema.field("vector"), vectors), part(job.folder, 0))
        assert verify(job, worker, 9) == ([0, 1], differs)
