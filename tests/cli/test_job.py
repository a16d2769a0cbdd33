"""`afterword job`: what is done, proofs by bits, and one file."""

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from tests.agreement import close
from tests.cli.conftest import Run

from afterword import Encoder
from afterword.jobs import Job, embed_files
from afterword.jobs.stored import StoredVectors

TEXTS = ["one", "", "银行 and a bank", "four", "five"]


@pytest.fixture
def words(llama: Path, tmp_path: Path) -> list[object]:
    file = tmp_path / "in.jsonl"
    file.write_text("".join(json.dumps({"id": i, "text": t}) + "\n" for i, t in enumerate(TEXTS)))
    return ["embed", "-m", llama, "-i", file, "-o", f"{tmp_path}/job/", "--shard-rows", 2, "--id", "id"]


def test_status_verify_and_join(run: Run, words: list[object], llama: Path, tmp_path: Path) -> None:
    folder = tmp_path / "job"
    assert run(*words).code == 1
    said = json.loads(run("job", "status", folder, "--json").out)
    assert (said["rows"], said["done"], said["shards"], said["rejected"], said["complete"]) == (5, 5, 3, 1, True)
    assert "5 of 5 done" in run("job", "status", folder).out
    ended = run("job", "verify", folder, "--shards", 2)
    assert ended.code == 0 and "2 shards embedded again: 2 equal within" in ended.out
    assert run("job", "join", folder, "-o", tmp_path / "all.parquet").code == 0
    assert pq.read_table(tmp_path / "all.parquet")["id"].to_pylist() == ["0", "1", "2", "3", "4"]
    assert StoredVectors(tmp_path / "all.parquet").missing() == 1
    assert run("job", "join", folder, "-o", tmp_path / "all.npy").code == 0
    made = np.load(tmp_path / "all.npy")
    good = [0, 2, 3, 4]
    assert close(made[good], Encoder.load(llama).encode([TEXTS[i] for i in good]), 1e-5) and np.isnan(made[1]).all()
    assert run("job", "join", folder, "-o", tmp_path / "all.jsonl").code == 0
    rows = [json.loads(line) for line in (tmp_path / "all.jsonl").read_text().splitlines()]
    assert rows[1]["vector"] is None and np.array_equal(np.float32(rows[3]["vector"]), made[3])
    assert "exists" in run("job", "join", folder, "-o", tmp_path / "all.npy").err


def test_a_job_is_not_trusted_with_code(run: Run, words: list[object], tmp_path: Path) -> None:
    run(*words)
    path = tmp_path / "job" / "job.json"
    begun = Job.open(path.parent).begun
    begun["command"]["method"] = ["@evil.py:method"]
    path.write_text(json.dumps(begun))
    ended = run("job", "verify", tmp_path / "job", "--shards", 1)
    assert ended.code == 2 and "runs code (@evil.py:method)" in ended.err


def test_a_folder_that_is_no_job(run: Run, tmp_path: Path) -> None:
    for verb in ("status", "verify"):
        ended = run("job", verb, tmp_path)
        assert ended.code == 2 and "is not a job: job.json is missing" in ended.err


def test_a_job_that_python_has_begun_is_embedded_again(
    run: Run, words: list[object], llama: Path, tmp_path: Path
) -> None:
    embed_files(tmp_path / "job", tmp_path / "in.jsonl", llama, field="text", id="id", shard_rows=2)
    ended = run("job", "verify", tmp_path / "job", "--shards", 2)
    assert ended.code == 0 and "2 equal within" in ended.out
    ended = run(*words)
    assert ended.code == 2 and "begun with verb embed_files" in ended.err
