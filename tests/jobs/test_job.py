"""A job is what `encode` gives, row for row and bit for bit, however often it was begun."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file, save_file
from tests.agreement import close

from afterword import Encoder, echo
from afterword.errors import DataError, InputError, JobError
from afterword.jobs import Job
from afterword.jobs.job import JobResult, Silent, kept
from afterword.jobs.recipe import JobRecipe, Load
from afterword.jobs.rows import Inputs
from afterword.jobs.run import run_job
from afterword.jobs.shard import ShardWorker
from afterword.methods.serialize import to_json

TEXTS = ["one", "", "银行 and a bank", "four", None, "six", "seven"]
Make = Callable[..., ShardWorker]


@pytest.fixture
def make(llama: Path, tmp_path: Path) -> Make:
    file = tmp_path / "in.jsonl"
    file.write_text("".join(json.dumps({"id": f"r{i}", "text": t}) + "\n" for i, t in enumerate(TEXTS)))

    def worker(methods: tuple[str, ...] = (), folder: str = "job", id: str | None = "id", **options: object):
        inputs = Inputs((file,), keep=("id",))
        columns = {"text": "text", **inputs.kinds()}
        return ShardWorker(
            tmp_path / folder, inputs, JobRecipe(Load(str(llama)), methods, options), columns, "llama", 2, id
        )

    return worker


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((folder / "shards").iterdir())}


def test_a_job_is_encode(make: Make, llama: Path) -> None:
    worker = make(normalize_embeddings=True)
    job = Job.create(worker, {}, 3)
    result = run_job(job, worker)
    assert (result.rows, result.rejected, result.shards, result.complete) == (7, 2, 3, True)
    table = Job.open(worker.folder).read().read_all()
    assert table.column_names == ["row", "text", "id", "problem", "vector"]
    assert table["row"].to_pylist() == list(range(7)) and table["id"].to_pylist() == [f"r{i}" for i in range(7)]
    good = [i for i, text in enumerate(TEXTS) if text]
    wanted = Encoder.load(llama).encode([str(TEXTS[i]) for i in good], normalize_embeddings=True)
    vectors = table["vector"].to_pylist()
    assert close(np.array([vectors[i] for i in good], np.float32), wanted, 1e-5)
    assert [i for i, vector in enumerate(vectors) if vector is None] == [1, 4]
    assert [(r["row"], r["line"], r["reason"]) for r in job.rejects()] == [(1, 2, "is empty"), (4, 5, "is null")]
    (info,) = job.infos.values()
    assert info.normalized and info.fingerprint == Encoder.load(llama).fingerprint
    assert job.read(["id"]).read_all().column_names == ["id"]


def test_several_methods_are_several_columns(make: Make) -> None:
    worker = make(("classical", "echo"))
    job = Job.create(worker, {}, 100)
    run_job(job, worker)
    assert job.read().schema.names == ["row", "text", "id", "problem", "classical", "echo"] and list(job.infos) == [
        "classical",
        "echo",
    ]


def test_what_is_refused(make: Make, tmp_path: Path) -> None:
    worker = make()
    run_job(Job.create(worker, {"--model": "a"}, 2), worker)
    before = files(worker.folder)
    for settings, rows, message in (
        ({"--model": "b"}, 2, "begun with --model a, and now it is b"),
        ({"--model": "a"}, 3, "begun with --shard-rows 2, and now it is 3"),
        ({"--model": "a", "--normalize": True}, 2, "begun with --normalize not given, and now it is true"),
    ):
        with pytest.raises(JobError, match=message):
            Job.create(worker, settings, rows)
    with pytest.raises(JobError, match=r"is not a job: job\.json is missing"):
        Job.open(tmp_path)
    (worker.folder / "job.json").write_text("{")
    with pytest.raises(JobError, match=r"job\.json cannot be read"):
        Job.create(worker, {"--model": "a"}, 2)
    assert files(worker.folder) == before
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("mine")
    with pytest.raises(DataError, match="mine was not made by Afterword"):
        Job.create(make(folder="mine"), {}, 2)
    assert (tmp_path / "mine" / "file").read_text() == "mine"


def test_an_empty_input(make: Make, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text("")
    worker = make()
    job = Job.create(worker, {}, 2)
    assert run_job(job, worker) == JobResult(0, 0, 1, True, 0) and job.read().read_all().num_rows == 0


def test_a_finished_job_sees_that_the_file_of_its_method_was_changed(make: Make, tmp_path: Path) -> None:
    file = tmp_path / "own_method.json"
    file.write_text(json.dumps(to_json(echo())))
    worker = make((f"@{file}",))
    run_job(Job.create(worker, {}, 3), worker)
    file.write_text(json.dumps(to_json(echo(copies=3))))
    with pytest.raises(JobError, match="was begun with vector method"):
        Job.create(worker, {}, 3)


def test_a_beginning_without_a_vector_gives_way_to_another_command(make: Make) -> None:
    with pytest.raises(InputError, match="truncate_dim=1000"):
        run_job(Job.create(make(truncate_dim=1000), {"--dimensions": 1000}, 3), make(truncate_dim=1000))
    worker = make()
    assert run_job(Job.create(worker, {"--dimensions": None}, 3), worker).complete
    with pytest.raises(JobError, match="--dimensions"):
        Job.create(worker, {"--dimensions": 8}, 3)


@pytest.mark.parametrize("columns", [["id", "id"], ["nope"]])
def test_columns_that_are_not_there_or_named_twice(columns: list[str], make: Make) -> None:
    worker = make()
    job = Job.create(worker, {}, 100)
    run_job(job, worker)
    with pytest.raises(JobError, match=f"column '{columns[-1]}': name each once, of row, text, id, problem, vector"):
        job.read(columns)


def test_shards_in_any_order_and_twice_have_the_same_bytes(make: Make) -> None:
    one, two = make(folder="one"), make(folder="two")
    run_job(Job.create(one, {}, 2), one)

    def backwards(worker: Any, numbers: Any, listener: Any) -> None:
        first, second = worker.start(), worker.start()
        for number in reversed(numbers):
            assert first(number) == second(number)

    run_job(Job.create(two, {}, 2), two, backwards)
    assert files(one.folder) == files(two.folder)


def test_a_shard_is_done_if_and_only_if_its_file_exists(make: Make) -> None:
    worker = make()
    job = Job.create(worker, {}, 2)
    assert run_job(job, worker).complete
    before = files(worker.folder)
    (worker.folder / "shards" / "000001.parquet").unlink()
    (worker.folder / "shards" / ".afterword-000003.writing").write_bytes(b"half")
    assert (job.complete, [shard.number for shard in job.missing()], job.result().rows) == (False, [1], 5)
    assert "5 rows kept" in kept(job)
    assert run_job(Job.create(worker, {}, 2), worker).complete
    assert before == {name: content for name, content in files(worker.folder).items() if name in before}


def test_rows_are_counted_as_they_are_embedded(make: Make) -> None:
    class Heard(Silent):
        total, rows, calls = 0, 0.0, 0

        def begin(self, rows: int, before: JobResult) -> None:
            self.total = rows

        def more(self, rows: float) -> None:
            self.rows += rows
            self.calls += 1

    worker, heard = make(), Heard()
    run_job(Job.create(worker, {}, 7), worker, listener=heard)
    assert (heard.total, heard.rows) == (7, 7) and heard.calls > 2, "one shard, and more than its end is reported"


@pytest.mark.parametrize("change", [(b"seven", b"eight"), (b"seven", b"seven more"), (b"\n", b"\n\n")])
def test_an_input_that_changed_is_refused(make: Make, tmp_path: Path, change: tuple[bytes, bytes]) -> None:
    worker, file = make(), tmp_path / "in.jsonl"
    job = Job.create(worker, {}, 2)
    worker.start()(0)
    file.write_bytes(file.read_bytes().replace(*change))
    with pytest.raises(JobError, match=r"in\.jsonl has changed since"):
        Job.create(worker, {}, 2)
    assert len(job.parts()) == 1
    again = Job.create(worker, {}, 2, overwrite=True)
    assert again.parts() == [] and run_job(again, worker).complete


@pytest.mark.parametrize("done", [1, 4])
def test_a_different_encoder_is_refused(make: Make, llama: Path, tmp_path: Path, done: int) -> None:
    model = tmp_path / "model"
    shutil.copytree(llama, model)
    worker = make(("classical",))
    worker = replace(worker, model=str(model), recipe=replace(worker.recipe, load=Load(str(model))))
    job = Job.create(worker, {}, 2)
    for number in range(done):
        worker.start()(number)
    with pytest.raises(JobError, match="was begun with vector method"):
        make(("echo",)).start()
    weights = load_file(model / "model.safetensors")
    weights["norm.weight"] += 1
    save_file(weights, model / "model.safetensors", {"format": "pt"})
    with pytest.raises(JobError, match="was begun with vector identity"):
        run_job(Job.create(worker, {}, 2), worker)
    assert len(job.parts()) == done
    assert Job.create(worker, {}, 2, overwrite=True).parts() == []


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"format": 1, "plan": 3}'])
def test_a_job_file_that_cannot_be_read(make: Make, content: str) -> None:
    worker = make()
    run_job(Job.create(worker, {}, 100), worker)
    (worker.folder / "job.json").write_text(content)
    with pytest.raises(JobError, match=r"job\.json"):
        Job.create(worker, {}, 100)
    assert run_job(Job.create(worker, {}, 100, overwrite=True), worker).complete
