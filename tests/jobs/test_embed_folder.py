"""Files are embedded into a folder by one call, which goes on with what it has begun."""

import json
from pathlib import Path

import numpy as np
import pytest
from tests.agreement import close

from afterword import Encoder
from afterword.errors import DataError, InputError, JobError, MethodError
from afterword.jobs import Job, embed_files

TEXTS = ["one", "", "银行 and a bank", "four"]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps({"name": f"r{i}", "body": t, "year": i}) + "\n" for i, t in enumerate(TEXTS)))
    return path


def test_a_call_embeds_files_and_goes_on(file: Path, llama: Path, tmp_path: Path) -> None:
    def call(**options: object) -> Job:
        return embed_files(
            tmp_path / "job", file, llama, "echo", field="body", id="name", keep=["year"], shard_rows=3,
            normalize_embeddings=True, **options,
        )  # fmt: skip

    job = call()
    table = job.read().read_all()
    assert job.complete and table.column_names == ["row", "text", "id", "year", "problem", "vector"]
    assert table["id"].to_pylist() == ["r0", "r1", "r2", "r3"] and table["year"].to_pylist() == ["0", "1", "2", "3"]
    wanted = Encoder.load(llama, "echo").encode([t for t in TEXTS if t], normalize_embeddings=True)
    vectors = table["vector"].to_pylist()
    assert close(np.array([vectors[i] for i in (0, 2, 3)], np.float32), wanted, 1e-5) and vectors[1] is None
    assert [r["reason"] for r in job.rejects()] == ["is empty"]
    whole = (tmp_path / "job/shards/000000.parquet").read_bytes()
    (tmp_path / "job/shards/000001.parquet").unlink()
    assert call().complete and (tmp_path / "job/shards/000000.parquet").read_bytes() == whole
    with pytest.raises(JobError, match=r"options prompt .*overwrite=True"):
        call(prompt="query: ")
    assert call(prompt="query: ", overwrite=True).complete


def test_without_texts_and_of_a_folder_of_files(file: Path, llama: Path, tmp_path: Path) -> None:
    folder = tmp_path / "many"
    folder.mkdir()
    file.rename(folder / "a.jsonl")
    job = embed_files(tmp_path / "job", [folder], llama, "classical", field="body", with_text=False)
    assert job.read().schema.names == ["row", "problem", "vector"] and job.rows == 4


def test_what_no_job_has_is_refused_before_anything_is_made(file: Path, llama: Path, tmp_path: Path) -> None:
    with pytest.raises(JobError, match="'conditions' is no option of a job's texts: there are prompt, prompt_name"):
        embed_files(tmp_path / "job", file, llama, conditions=["a"])
    for wrong, error in (
        ({"method": "nope"}, MethodError), ({"shard_rows": 0}, JobError), ({"workers": 0}, InputError),
        ({"keep": ["row"]}, JobError), ({"keep": ["id"], "id": "name"}, JobError), ({"keep": ["vector"]}, JobError),
    ):  # fmt: skip
        with pytest.raises(error):
            embed_files(tmp_path / "job", file, llama, **wrong)
    with pytest.raises(JobError, match="no file is given"):
        embed_files(tmp_path / "job", [], llama)
    with pytest.raises(DataError, match="nowhere"):
        embed_files(tmp_path / "job", tmp_path / "nowhere.txt", llama)
    assert not (tmp_path / "job").exists()


def test_ids_that_name_no_row_are_warned_of(file: Path, llama: Path, tmp_path: Path) -> None:
    file.write_text('{"name": "a", "body": "one"}\n' * 2)
    with pytest.warns(
        UserWarning, match="^1 row has the id of an earlier row: id='name' does not name each row"
    ) as told:
        embed_files(tmp_path / "job", file, llama, "classical", field="body", id="name")
    assert told[0].filename == __file__
