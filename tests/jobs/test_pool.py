"""Worker processes: each shard done once, whoever dies, and no process left behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from threading import Thread
from typing import Any

import pytest
from tests.toy_worker import Toy, lines

from afterword.errors import BadRow, DataError, ModelError
from afterword.jobs.pool import SMALLEST, STARTS, THREADS, Outcome, environment, run_local
from afterword.jobs.workers_cores import cores

pytestmark = pytest.mark.filterwarnings("ignore:.* wait for each other")


class Heard:
    """A listener that keeps what it was told, and kills a worker now and then."""

    def __init__(self, then: Callable[[int, dict[str, Any]], None] = lambda number, marker: None) -> None:
        self.markers: dict[int, dict[str, Any]] = {}
        self.again: list[tuple[int, str]] = []
        self.given_up: dict[int, str] = {}
        self.then = then

    def done(self, number: int, marker: dict[str, Any]) -> None:
        assert number not in self.markers
        self.markers[number] = marker
        self.then(number, marker)

    def retried(self, number: int, why: str) -> None:
        self.again.append((number, why))

    def failed(self, number: int, error: str) -> None:
        self.given_up[number] = error


def run(toy: Toy, numbers: range, heard: Heard | None = None, workers: int = 2, **options: Any) -> Outcome:
    try:
        return run_local(toy, numbers, workers=workers, threads=1, listener=heard or Heard(), **options)
    finally:
        assert not alive(toy), "a worker is left"


def pids(toy: Toy) -> list[int]:
    return [int(line.split()[0]) for line in lines(toy.folder / "starts")]


def alive(toy: Toy) -> list[int]:
    """The workers that still run; one that nobody has waited for does not."""
    return [pid for pid in pids(toy) if state(pid) not in ("gone", "Z")]


def state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "gone"


def shards(toy: Toy) -> dict[str, str]:
    return {path.name: path.read_text() for path in toy.folder.glob("0*")}


def tokens(toy: Toy, number: int) -> list[str]:
    """The numbers of tokens in a batch, of each attempt at a shard."""
    return [line.split()[2] for line in lines(toy.folder / "log") if line.split()[0] == str(number)]


def test_each_shard_is_done_once_and_told(tmp_path: Path):
    toy, heard = Toy(tmp_path), Heard()
    assert run(toy, range(2, 12), heard) == Outcome(10, {})
    assert shards(toy) == {f"{n:06}": f"shard {n}" for n in range(2, 12)}
    assert {n: marker["rows"] for n, marker in heard.markers.items()} == {n: n for n in range(2, 12)}
    assert not heard.again and not heard.given_up
    assert {line.split()[1] for line in lines(tmp_path / "starts")} == {"1"}, "a process starts a worker once"


def test_no_more_processes_than_shards(tmp_path: Path):
    toy = Toy(tmp_path)
    assert run(toy, range(1), workers=4) == Outcome(1, {})
    assert len(pids(toy)) == 1
    assert run(toy, range(0), workers=4) == Outcome(0, {})
    assert len(pids(toy)) == 1


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("SIGKILL", "was killed by SIGKILL, perhaps because memory ran out"),
        ("SIGSEGV", "was killed by SIGSEGV"),
        ("exit", "ended with code 3: out of luck"),
        ("bug", "raised RuntimeError: no idea"),
    ],
)
def test_a_worker_that_dies_is_replaced_and_its_shard_done_again(tmp_path: Path, fault: str, why: str):
    toy, heard = Toy(tmp_path, {1: [fault]}), Heard()
    assert run(toy, range(4), heard, workers=1) == Outcome(4, {})
    assert heard.again == [(1, why)] and list(heard.markers) == [0, 2, 3, 1] and len(shards(toy)) == 4
    assert tokens(toy, 1) == ["None", "1024"]
    assert len(pids(toy)) == 2


def test_batches_are_halved_at_each_death_but_not_for_ever(tmp_path: Path):
    toy = Toy(tmp_path, {0: ["SIGKILL"] * 3}, batch_tokens=100)
    assert run(toy, range(1)) == Outcome(1, {})
    assert tokens(toy, 0) == ["None", "50", "25", str(SMALLEST)]


def test_a_shard_that_kills_every_worker_is_given_up_and_the_rest_done(tmp_path: Path):
    toy, heard = Toy(tmp_path, {1: ["SIGKILL"] * 9}), Heard()
    outcome = run(toy, range(4), heard, retries=2)
    why = "was killed by SIGKILL, perhaps because memory ran out"
    assert outcome == Outcome(3, {1: why}) and heard.given_up == {1: why}
    assert [number for number, _ in heard.again] == [1, 1] and len(tokens(toy, 1)) == 3
    assert set(shards(toy)) == {"000000", "000002", "000003"}
    assert run(Toy(tmp_path), range(1, 2)) == Outcome(1, {}), "a later run does it"


@pytest.mark.parametrize(
    ("fault", "kind", "told"),
    [("input", DataError, "a.txt has changed"), ("row", DataError, "a.txt:3: is blank"), ("disk", OSError, "[Errno 28] "
     "No space left on device: 'shards/000001.parquet'")],
)  # fmt: skip
def test_an_error_about_the_input_or_the_disk_ends_the_run(tmp_path: Path, fault: str, kind: type, told: str):
    toy, heard = Toy(tmp_path, {0: [fault]}), Heard()
    with pytest.raises(kind) as caught:
        run(toy, range(50), heard, workers=1)
    assert str(caught.value) == told and type(caught.value) is kind is not BadRow
    assert not heard.markers and not heard.again and len(tokens(toy, 0)) == 1


def test_three_deaths_at_the_start_end_the_run(tmp_path: Path):
    toy = Toy(tmp_path, starts=["exit"] * 9)
    with pytest.raises(ModelError, match=f"^{STARTS} workers .* ended with code 3: out of luck$"):
        run(toy, range(4), workers=1)
    assert len(pids(toy)) == STARTS and not shards(toy)


def test_fewer_deaths_at_the_start_do_not(tmp_path: Path):
    toy = Toy(tmp_path, {2: ["bug"]}, starts=["bug", "SIGKILL", "", "bug", "bug"])
    assert run(toy, range(4), workers=1) == Outcome(4, {})
    assert len(pids(toy)) == 6


def test_an_error_at_the_start_ends_the_run_at_once(tmp_path: Path):
    toy = Toy(tmp_path, starts=["input"])
    with pytest.raises(DataError, match=r"^a\.txt has changed$"):
        run(toy, range(4), workers=1)
    assert len(pids(toy)) == 1


def test_an_error_of_the_listener_ends_the_workers(tmp_path: Path):
    def stop(number: int, marker: dict[str, Any]) -> None:
        raise KeyboardInterrupt

    toy = Toy(tmp_path, seconds=0.01)
    with pytest.raises(KeyboardInterrupt):
        run(toy, range(100), Heard(stop))


def test_an_interruption_while_it_waits_ends_the_workers(tmp_path: Path):
    toy = Toy(tmp_path, seconds=1000)

    def interrupt() -> None:
        while len(lines(tmp_path / "log")) < 2:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        run(toy, range(5))


@pytest.mark.parametrize("kills", [4, pytest.param(50, marks=pytest.mark.soak)])
def test_workers_killed_at_random(tmp_path: Path, chance: Random, kills: int):
    toy, left = Toy(tmp_path, seconds=0.02), [kills]

    def kill(number: int, marker: dict[str, Any]) -> None:
        if left[0] and (victims := alive(toy)):
            left[0] -= 1
            time.sleep(chance.random() * 0.03)
            os.kill(chance.choice(victims), signal.SIGKILL)

    heard = Heard(kill)
    assert run(toy, range(100), heard, retries=100) == Outcome(100, {})
    assert shards(toy) == {f"{n:06}": f"shard {n}" for n in range(100)}
    assert left == [0] and len(heard.again) <= kills


DRIVER = """
import sys
from pathlib import Path
from tests.toy_worker import Toy
from tests.jobs.test_pool import Heard
from afterword.jobs.pool import run_local
run_local(Toy(Path(sys.argv[1]), seconds=1000), range(9), workers=2, threads=1, listener=Heard())
"""


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM])
def test_workers_end_when_the_one_that_started_them_is_killed(tmp_path: Path, sent: signal.Signals):
    """The script has no ``if __name__ == "__main__":``."""
    script = tmp_path / "script.py"
    script.write_text(DRIVER)
    path = os.pathsep.join(["", *sys.path])
    driver = subprocess.Popen([sys.executable, script, tmp_path], env={**os.environ, "PYTHONPATH": path})
    until(lambda: len(lines(tmp_path / "log")) == 2)
    assert len(alive(Toy(tmp_path))) == 2
    driver.send_signal(sent)
    assert driver.wait() == -sent
    until(lambda: not alive(Toy(tmp_path)))
    assert not shards(Toy(tmp_path))


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_threads_are_in_the_environment_of_a_worker(tmp_path: Path):
    toy = Toy(tmp_path)
    assert run(toy, range(1)) == Outcome(1, {})
    assert [line.split()[3:] for line in lines(tmp_path / "log")] == [["1", "1"]]
    assert {environment(2, 1)[name] for name in THREADS} == {"1"}
    assert environment(1)["OMP_NUM_THREADS"] == str(cores())


def test_more_threads_than_cores_give_a_warning():
    with pytest.warns(UserWarning, match=r"^1,000 workers of 1 thread on \d+ cores? wait for each other: give"):
        assert environment(1000)["MKL_NUM_THREADS"] == "1"
    with pytest.warns(UserWarning, match=r"^2 workers of 1,000 threads on "):
        assert environment(2, 1000)["MKL_NUM_THREADS"] == "1000"
