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
from afterword.jobs.contract import sealed
from afterword.jobs.stored_vectors import StoredVectors

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
    ended = run("job", "verify", folder, "--recompute", 2)
    assert ended.code == 0 and "2 shards embedded again: 2 the same bit for bit" in ended.out
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


def test_what_verify_finds(run: Run, words: list[object], tmp_path: Path) -> None:
    folder = tmp_path / "job"
    run(*words)
    part = folder / "shards" / "000001.parquet"
    content = bytearray(part.read_bytes())
    content[40] ^= 1
    part.write_bytes(content)
    (folder / "done" / "000002.json").unlink()
    (folder / "shards" / "000009.parquet").write_bytes(b"mine")
    ended = run("job", "verify", folder)
    assert ended.code == 1
    assert [line.split(":")[0] for line in ended.out.splitlines()] == [
        "shard 000001 is damaged",
        "shard 000002 is not done",
        f"{folder}/shards/000009.parquet is of no shard of this job",
    ]
    assert run("job", "join", folder, "-o", tmp_path / "all.npy").code == 2
    (folder / "shards" / "000009.parquet").unlink()
    assert run(*words).code == 1 and run("job", "verify", folder).code == 0


def test_a_shard_that_is_whole_and_wrong_is_found_by_embedding_it_again(
    run: Run, words: list[object], tmp_path: Path
) -> None:
    folder = tmp_path / "job"
    run(*words)
    for kind, ending in (("shards", "parquet"), ("done", "json")):  # two shards of two rows, each in the other's place
        content = (folder / kind / f"000002.{ending}").read_bytes()
        (folder / kind / f"000001.{ending}").write_bytes(content.replace(b'"rows": 1', b'"rows": 2'))
    ended = run("job", "verify", folder, "--recompute", 3)
    assert ended.code == 1 and "shard 000001 differs from what was embedded again" in ended.out


def test_a_job_is_not_trusted_with_code(run: Run, words: list[object], tmp_path: Path) -> None:
    run(*words)
    path = tmp_path / "job" / "job.json"
    begun = Job.open(path.parent).begun
    begun["command"]["method"] = ["@evil.py:method"]
    path.write_text(json.dumps(sealed(begun)))
    ended = run("job", "verify", tmp_path / "job", "--recompute", 1)
    assert ended.code == 2 and "runs code (@evil.py:method)" in ended.err


def test_a_folder_that_is_no_job(run: Run, tmp_path: Path) -> None:
    for verb in ("status", "verify"):
        ended = run("job", verb, tmp_path)
        assert ended.code == 2 and "is no folder of a job: job.json is missing" in ended.err


def test_a_job_that_python_has_begun_is_embedded_again(
    run: Run, words: list[object], llama: Path, tmp_path: Path
) -> None:
    embed_files(tmp_path / "job", tmp_path / "in.jsonl", llama, field="text", id="id", shard_rows=2)
    ended = run("job", "verify", tmp_path / "job", "--recompute", 2)
    assert ended.code == 0 and "2 the same bit for bit" in ended.out
    ended = run(*words)
    assert ended.code == 2 and "was begun by `embed_files` in Python" in ended.err


def test_a_job_of_no_command_of_this_version(run: Run, words: list[object], tmp_path: Path) -> None:
    run(*words)
    path = tmp_path / "job" / "job.json"
    begun = Job.open(path.parent).begun
    path.write_text(json.dumps(sealed({**begun, "command": {"input": ["in.jsonl"]}})))
    ended = run("job", "verify", tmp_path / "job", "--recompute", 1)
    assert ended.code == 2 and "was begun by no command of this version" in ended.err
