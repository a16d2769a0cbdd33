"""Files that are not as they were, and shards that are embedded again; tests/cli/test_job.py damages more."""

import json
from pathlib import Path

from afterword.jobs.job import Job
from afterword.jobs.plan import Inputs
from afterword.jobs.recipe import JobRecipe, Load
from afterword.jobs.shard import ShardWorker
from afterword.jobs.verify import problems, recompute


def test_a_whole_job(llama: Path, tmp_path: Path) -> None:
    file = tmp_path / "in.txt"
    file.write_text("one\ntwo\n\nfour\n")
    worker = ShardWorker(tmp_path / "job", Inputs((file,)), JobRecipe(Load(str(llama))), {"text": "text"}, "llama", 2)
    job = Job.create(worker, {}, 1)
    assert len(problems(job)) == 4 and all("is not done" in line for line in problems(job))
    job.run(worker)
    assert problems(job) == [] and recompute(job, worker, 3) == ([0, 1, 3], [])
    assert recompute(job, worker, 99) == ([0, 1, 2, 3], [])
    marker = job.folder / "done" / "000000.json"
    marker.write_text(json.dumps({**json.loads(marker.read_text()), "rows": 2}))
    assert len(problems(job)) == 1
