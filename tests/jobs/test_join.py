"""One file of a job's rows; tests/cli/test_job.py compares the three formats."""

from pathlib import Path

import pytest

from afterword.errors import InputError, JobError
from afterword.jobs.job import Job
from afterword.jobs.output import join
from afterword.jobs.recipe import JobRecipe, Load
from afterword.jobs.rows import Inputs
from afterword.jobs.run import run_job
from afterword.jobs.shard import ShardWorker


def test_what_is_refused(llama: Path, tmp_path: Path) -> None:
    file = tmp_path / "in.txt"
    file.write_text("one\ntwo\n")
    recipe = JobRecipe(Load(str(llama)), ("classical", "echo"))
    worker = ShardWorker(tmp_path / "job", Inputs((file,)), recipe, {"text": "text"}, "llama", 2)
    job = Job.create(worker, {}, 1)
    with pytest.raises(JobError, match=r"2 of 2 shards of .* are not done"):
        join(job, tmp_path / "a.parquet")
    run_job(job, worker)
    with pytest.raises(InputError, match="one vector a row, and 2 methods were given"):
        join(job, tmp_path / "a.npy")
    assert join(job, tmp_path / "a.parquet") == 2
    with pytest.raises(InputError, match="exists"):
        join(job, tmp_path / "a.parquet")
    assert join(job, tmp_path / "a.parquet", overwrite=True) == 2
    (tmp_path / "link").symlink_to(tmp_path / "job")
    for path in ("job/shards/000000.parquet", "job/shards/000009.parquet", "job/a.jsonl", "link/a.npy"):
        with pytest.raises(InputError, match="would be a file of the job itself: choose a place outside"):
            join(job, tmp_path / path, overwrite=True)
    assert sorted(path.name for path in (tmp_path / "job" / "shards").iterdir()) == [
        "000000.parquet",
        "000001.parquet",
    ]
