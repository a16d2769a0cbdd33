"""Shards on Ray: actors may die, and each shard is done or given up."""

import pickle
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.jobs.test_pool import Heard, shards, tokens
from tests.tiny import tiny
from tests.toy_worker import Toy, lines

from afterword import Encoder
from afterword.cli import main
from afterword.errors import DataError
from afterword.jobs.on_ray import Embed, check_reachable, connected, run_on_ray, told
from afterword.jobs.pool import Outcome
from afterword.jobs.workers_ray import GONE

ray = pytest.importorskip("ray")


@pytest.fixture(scope="module")
def started() -> Iterator[None]:
    """One Ray for the tests of this file."""
    before = signal.getsignal(signal.SIGTERM)
    with connected(None) as found:
        assert found is ray and signal.getsignal(signal.SIGTERM) == before
        yield
    assert not ray.is_initialized()


def run(toy: Toy, numbers: range, heard: Heard | None = None, **options: Any) -> Outcome:
    return run_on_ray(toy, numbers, workers=2, listener=heard or Heard(), **options)


@pytest.mark.usefixtures("started")
def test_actors_die_and_each_shard_is_done_or_given_up(tmp_path: Path):
    toy, heard = Toy(tmp_path, {1: ["SIGKILL"], 3: ["bug"], 5: ["SIGKILL"] * 9}), Heard()
    outcome = run(toy, range(8), heard, retries=1)
    assert outcome == Outcome(7, {5: GONE}) and heard.given_up == {5: GONE}
    assert sorted(heard.again) == [(1, GONE), (3, "raised RuntimeError: no idea"), (5, GONE)]
    assert set(shards(toy)) == {f"{n:06}" for n in range(8) if n != 5} and set(heard.markers) == set(range(8)) - {5}
    assert tokens(toy, 1) == tokens(toy, 3) == tokens(toy, 5) == ["None", "1024"]
    assert {tuple(line.split()[3:]) for line in lines(tmp_path / "log")} == {("1", "1")}
    assert {line.split()[1] for line in lines(tmp_path / "starts")} == {"1"}, "an actor starts a worker once"


@pytest.mark.usefixtures("started")
def test_an_error_about_the_input_ends_the_run(tmp_path: Path):
    with pytest.raises(DataError, match=r"^a\.txt has changed$"):
        run(Toy(tmp_path, {0: ["input"]}), range(3))
    assert ray.is_initialized(), "a Ray that was there stays"


@pytest.mark.usefixtures("started")
def test_vectors_of_a_data_set_of_ones_own():
    texts = ["The bank of the river.", "他在银行工作。", "A bank for my money."]
    found = ray.data.from_items([{"text": text, "id": i} for i, text in enumerate(texts)]).map_batches(
        Embed,
        fn_constructor_kwargs={"model": "afterword-mini", "method": "classical", "on_long": "ignore"},
        compute=ray.data.ActorPoolStrategy(size=1),
        num_cpus=1,
    )
    rows = sorted(found.take_all(), key=lambda row: row["id"])
    expected = Encoder.load("afterword-mini").encode(texts)
    assert [row["text"] for row in rows] == texts
    assert np.array_equal(np.stack([row["vector"] for row in rows]), expected)


@pytest.mark.usefixtures("started")
def test_a_job_on_ray_is_the_job_of_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    model = tiny("gpt2", tmp_path / "gpt2")
    (tmp_path / "texts.txt").write_text("".join(f"A text about {i} banks.\n" for i in range(10)))
    monkeypatch.chdir(tmp_path)
    command = ["embed", "-m", str(model), "--method", "classical", "-i", "texts.txt", "--shard-rows", "3", "-o"]
    assert main([*command, "here/"]) == 0
    assert main([*command, "there/", "--ray", "local", "--workers", "1"]) == 0
    parts = sorted((tmp_path / "here" / "shards").iterdir())
    assert len(parts) == 4
    assert all(part.read_bytes() == (tmp_path / "there" / "shards" / part.name).read_bytes() for part in parts)


def test_what_is_told_of_rows_in_any_order():
    def row(number: int, *said: Any) -> dict[str, Any]:
        return {"item": np.array([number]), "said": np.array([pickle.dumps(said)], object)}

    heard = Heard()
    rows = [row(3, "done", {"rows": 1}, []), row(1, "failed", "b", ["a"]), row(2, "done", {"rows": 2}, ["c", "d"])]
    assert told(rows, heard) == Outcome(2, {1: "b"})
    assert heard.markers == {3: {"rows": 1}, 2: {"rows": 2}} and heard.given_up == {1: "b"}
    assert heard.again == [(1, "a"), (2, "c"), (2, "d")]
    with pytest.raises(DataError, match="changed"):
        told([*rows[:1], row(5, "refused", DataError("changed"), [])], Heard())


def test_nothing_to_do_starts_no_ray(tmp_path: Path):
    assert run(Toy(tmp_path), range(0), address="no such place") == Outcome(0, {})


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "127.0.0.1:port"])
def test_no_cluster_at_an_address(address: str):
    with pytest.raises(DataError, match=f"^no Ray at {address}: "):
        check_reachable(address)


def test_no_address_to_reach():
    check_reachable(None)
    check_reachable("auto")
