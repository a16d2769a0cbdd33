"""A job is what `encode` gives, row for row and bit for bit, however often it was begun."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.agreement import close

from afterword import Encoder, echo
from afterword.errors import DataError, InputError, JobError
from afterword.files.stamps import model_stamps
from afterword.index.stored import parts_of
from afterword.jobs import Job
from afterword.jobs.join import join
from afterword.jobs.plan import Inputs
from afterword.jobs.recipe import JobRecipe, Load
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
    kinds = ("shards", "rejects")
    return {f"{kind}/{p.name}": p.read_bytes() for kind in kinds for p in sorted((folder / kind).iterdir())}


def test_a_job_is_encode(make: Make, llama: Path) -> None:
    worker = make(normalize_embeddings=True)
    job = Job.create(worker, {}, 3)
    result = job.run(worker)
    assert (result.rows, result.rejected, result.shards, result.complete) == (7, 2, 3, True)
    table = Job.open(worker.folder).read().read_all()
    assert table.column_names == ["row", "text", "id", "vector"]
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
    job.run(worker)
    assert job.read().schema.names == ["row", "text", "id", "classical", "echo"] and list(job.infos) == [
        "classical",
        "echo",
    ]


def test_shards_in_any_order_and_twice_are_the_same_bytes(make: Make) -> None:
    one, other = make(folder="one"), make(folder="other")
    Job.create(one, {}, 2).run(one)

    def backwards(worker: ShardWorker, numbers, listener):
        first, second = worker.start(), worker.start()
        for number in reversed(numbers):
            assert first(number) == second(number)
        return {}

    Job.create(other, {}, 2).run(other, backwards)
    assert files(one.folder) == files(other.folder)


@pytest.mark.parametrize("what", ["part", "marker", "listing", "cut", "gone"])
def test_a_damaged_part_is_found_and_made_again(make: Make, what: str) -> None:
    worker = make()
    job = Job.create(worker, {}, 2)
    job.run(worker)
    before, part = files(worker.folder), worker.folder / "shards" / "000000.parquet"
    path = {
        "marker": worker.folder / "done" / "000000.json",
        "listing": worker.folder / "rejects" / "000000.jsonl",
    }.get(what, part)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content[:-9] if what == "cut" else content)
    if what == "gone":
        path.unlink()
    assert job.damaged() == [0]
    assert Job.create(worker, {}, 2).run(worker).complete and files(worker.folder) == before and job.damaged() == []


@pytest.mark.parametrize("killed_after", [1, 2, 3])
def test_a_damaged_part_that_a_killed_run_has_half_removed(
    make: Make, killed_after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = make()
    job = Job.create(worker, {}, 2)
    job.run(worker)
    before, part = files(worker.folder), worker.folder / "shards" / "000000.parquet"
    part.write_bytes(part.read_bytes()[:-9] + b"123456789")
    real, seen = Path.unlink, []

    def unlink(path: Path, missing_ok: bool = False) -> None:
        if path.stem == "000000":
            seen.append(path)
            if len(seen) > killed_after:
                raise KeyboardInterrupt
        real(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", unlink)
    if killed_after < 3:
        with pytest.raises(KeyboardInterrupt):
            job.run(worker)
    monkeypatch.undo()
    assert Job.create(worker, {}, 2).run(worker).complete and files(worker.folder) == before


def test_a_part_without_a_marker_is_not_trusted(make: Make) -> None:
    worker = make()
    job = Job.create(worker, {}, 2)
    job.run(worker)
    before = files(worker.folder)
    (worker.folder / "done" / "000001.json").unlink()
    (worker.folder / "shards" / "000001.parquet").write_bytes(b"rubbish")
    assert Job.create(worker, {}, 2).run(worker).complete and files(worker.folder) == before


def test_a_file_that_was_only_touched_is_compared_once(make: Make, tmp_path: Path) -> None:
    worker = make()
    Job.create(worker, {}, 2)
    os.utime(tmp_path / "in.jsonl", (1, 1))
    assert Job.create(worker, {}, 2).begun["files"][0]["mtime_ns"] == 10**9
    assert Job.open(worker.folder).begun["files"][0]["mtime_ns"] == 10**9


def test_the_model_may_be_somewhere_else_as_long_as_there_is_work(make: Make) -> None:
    worker = make()
    job = Job.create(worker, {"--model": "a"}, 2)
    worker.start()(0)
    assert Job.create(worker, {"--model": "b"}, 2).run(worker).complete
    with pytest.raises(JobError, match="begun with --model a, and now it is b"):
        Job.create(worker, {"--model": "b"}, 2)
    assert job.complete


def test_what_is_refused(make: Make, tmp_path: Path) -> None:
    worker = make()
    Job.create(worker, {"--model": "a"}, 2).run(worker)
    before = files(worker.folder)
    for settings, rows, message in (
        ({"--model": "b"}, 2, "begun with --model a, and now it is b"),
        ({"--model": "a"}, 3, "begun with --shard-rows 2, and now it is 3"),
        ({"--model": "a", "--normalize": True}, 2, "begun with --normalize not given, and now it is true"),
    ):
        with pytest.raises(JobError, match=message):
            Job.create(worker, settings, rows)
    with pytest.raises(JobError, match=r"is no folder of a job: job\.json is missing"):
        Job.open(tmp_path)
    (worker.folder / "job.json").write_text("{")
    with pytest.raises(JobError, match=r"job\.json is damaged"):
        Job.create(worker, {"--model": "a"}, 2)
    assert files(worker.folder) == before
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("mine")
    with pytest.raises(DataError, match="mine was not made by Afterword: move it away"):
        Job.create(make(folder="mine"), {}, 2)
    assert (tmp_path / "mine" / "file").read_text() == "mine"


def test_another_encoder_is_refused_by_the_worker_that_loads_it(make: Make) -> None:
    worker = make(("classical",))
    job = Job.create(worker, {}, 2)
    worker.start()(0)
    with pytest.raises(JobError, match="was begun with method"):
        job.run(make(("echo",)))
    made = json.loads((worker.folder / "made_by.json").read_text())
    made["fingerprint"] = {"vector": "0"}
    (worker.folder / "made_by.json").write_text(json.dumps(made))
    with pytest.raises(JobError, match="was begun with fingerprint"):
        job.run(worker)
    assert len(job.parts()) == 1


def test_an_input_that_changed_is_refused(make: Make, tmp_path: Path) -> None:
    worker = make()
    job = Job.create(worker, {}, 2)
    file = tmp_path / "in.jsonl"
    content = file.read_bytes()
    file.write_bytes(content.replace(b"seven", b"eight"))
    with pytest.raises(JobError, match=r"in\.jsonl has changed .* from line 7 on"):
        job.run(worker)  # the worker reads other rows than the plan has
    assert len(job.parts()) == 3
    with pytest.raises(JobError, match=r"in\.jsonl has changed .* from line 7 on"):
        Job.create(worker, {}, 2)
    file.write_bytes(content)
    assert Job.create(worker, {}, 2).run(worker).complete


def test_a_plan_without_its_job_is_made_anew(make: Make) -> None:
    worker = make()
    Job.create(worker, {}, 2)
    (worker.folder / "job.json").unlink()
    (worker.folder / "plan.jsonl").write_text("half a pl")
    assert Job.create(worker, {}, 2).run(worker).complete


def test_an_empty_input(make: Make, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text("")
    with pytest.raises(JobError, match="holds no row"):
        Job.create(make(), {}, 2)
    assert not (tmp_path / "job").exists()


@pytest.mark.parametrize(
    ("name", "value"), [("files", None), ("--method", "echo"), ("plan", "1f"), ("strange", 1), ("command", {"a": 1})]
)
def test_a_job_file_with_other_values_is_damaged(name: str, value: object, make: Make) -> None:
    worker = make()
    job = Job.create(worker, {"--method": ["classical"]}, 100)
    path = worker.folder / "job.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), name: value}))
    with pytest.raises(JobError, match=r"job\.json is damaged; --overwrite starts it anew"):
        Job.open(worker.folder)
    Job.create(worker, {"--method": ["classical"]}, 100, overwrite=True)
    assert Job.open(worker.folder).begun == job.begun


def test_a_marker_of_other_rows_is_of_no_finished_shard(make: Make) -> None:
    worker = make()
    job = Job.create(worker, {}, 4)
    assert job.run(worker).complete
    path = worker.folder / "done" / "000001.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "rows": 99}))
    assert (job.result().rows, job.complete, job.damaged()) == (4, False, [1])
    assert job.run(worker).complete and job.result().rows == 7 and job.damaged() == []


def test_a_plan_that_lost_its_last_line_is_damaged(make: Make) -> None:
    worker = make()
    Job.create(worker, {}, 3).run(worker)
    path = worker.folder / "plan.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    with pytest.raises(JobError, match=r"plan\.jsonl is damaged: --overwrite"):
        Job.open(worker.folder)


def test_a_finished_job_sees_that_its_input_was_written_anew_with_the_same_size_and_time(
    make: Make, tmp_path: Path
) -> None:
    worker, file = make(), tmp_path / "in.jsonl"
    Job.create(worker, {}, 3).run(worker)
    state = file.stat()
    file.write_bytes(file.read_bytes().replace(b"seven", b"SEVEN"))
    os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns))
    with pytest.raises(JobError, match=r"in\.jsonl has changed since the job was begun"):
        Job.create(worker, {}, 3)
    job = Job.create(worker, {}, 3, overwrite=True)
    assert not job.complete and job.run(worker).complete


def test_a_finished_job_sees_that_its_models_weights_were_changed_in_place(
    make: Make, llama: Path, tmp_path: Path
) -> None:
    model = tmp_path / "model"
    shutil.copytree(llama, model)
    worker = make()
    worker = replace(worker, model=str(model), recipe=replace(worker.recipe, load=Load(str(model))))
    threads = torch.get_num_threads()
    Job.create(worker, {}, 3).run(worker)
    os.utime(model / "config.json", (1, 1))
    assert Job.create(worker, {}, 3).complete  # its weights are the same
    assert Job.open(worker.folder).begun["model files"] == model_stamps(str(model))
    weights = load_file(model / "model.safetensors")
    weights["norm.weight"] += 1
    save_file(weights, model / "model.safetensors", {"format": "pt"})
    with pytest.raises(JobError, match="was begun with identity"):
        Job.create(worker, {}, 3)
    model.rename(tmp_path / "away")
    assert Job.create(worker, {}, 3).complete  # nothing is there to compare
    (tmp_path / "away").rename(model)
    with pytest.raises(JobError, match="was begun with identity"):
        Job.create(worker, {}, 3)
    Job.open(worker.folder).remove(1)
    assert len(Job.create(worker, {}, 3).done()) == 2
    assert Job.create(worker, {}, 3, overwrite=True).done() == {}
    assert torch.get_num_threads() == threads


def test_a_finished_job_sees_that_the_file_of_its_method_was_changed(make: Make, tmp_path: Path) -> None:
    file = tmp_path / "own_method.json"
    file.write_text(json.dumps(to_json(echo())))
    worker = make((f"@{file}",))
    Job.create(worker, {}, 3).run(worker)
    file.write_text(json.dumps(to_json(echo(copies=3))))
    with pytest.raises(JobError, match="was begun with method"):
        Job.create(worker, {}, 3)


def test_a_beginning_without_a_vector_gives_way_to_another_command(make: Make) -> None:
    with pytest.raises(InputError, match="truncate_dim=1000"):
        Job.create(make(truncate_dim=1000), {"--dimensions": 1000}, 3).run(make(truncate_dim=1000))
    worker = make()
    assert Job.create(worker, {"--dimensions": None}, 3).run(worker).complete
    with pytest.raises(JobError, match="--dimensions"):
        Job.create(worker, {"--dimensions": 8}, 3)


@pytest.mark.parametrize("columns", [["id", "id"], ["nope"]])
def test_columns_that_are_not_there_or_named_twice(columns: list[str], make: Make) -> None:
    worker = make()
    job = Job.create(worker, {}, 100)
    job.run(worker)
    with pytest.raises(JobError, match=f"column '{columns[-1]}': name each once, of row, text, id, vector"):
        job.read(columns)


def test_a_shard_in_anothers_place_is_not_read(make: Make) -> None:
    worker = make()
    job = Job.create(worker, {"--id": "id"}, 2)
    job.run(worker)
    assert job.id == "id" and job.read(["row"]).read_all()["row"].to_pylist() == list(range(7))
    first, second, other = (worker.folder / "shards" / name for name in ("000000.parquet", "000001.parquet", "x"))
    first.rename(other)
    second.rename(first)
    other.rename(second)
    with pytest.raises(JobError, match=r"000000\.parquet is damaged: the job's command embeds it again"):
        job.read(["row"]).read_all()
    with pytest.raises(JobError, match="columns='id': give a list of names"):
        job.read("id")


def test_who_has_begun_a_job_is_named(make: Make) -> None:
    worker = make()
    Job.create(worker, {"verb": "embed_files"}, 100).run(worker)
    with pytest.raises(JobError, match="was begun by `embed_files` in Python: go on with that"):
        Job.create(worker, {"verb": "embed"}, 100)


def test_a_damaged_part_is_neither_joined_nor_indexed(make: Make, tmp_path: Path) -> None:
    worker = make()
    job = Job.create(worker, {}, 4)
    job.run(worker)
    path = worker.folder / "shards" / "000001.parquet"
    written = bytearray(path.read_bytes())
    written[20] ^= 1
    path.write_bytes(written)
    for use in (lambda: join(job, tmp_path / "all.parquet"), lambda: parts_of(worker.folder)):
        with pytest.raises(JobError, match=r"000001\.parquet is damaged: the job's command embeds it again"):
            use()
    assert not (tmp_path / "all.parquet").exists()
