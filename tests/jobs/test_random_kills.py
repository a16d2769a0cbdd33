"""A job of two workers is killed at random times, and goes on: in the end it is the job that nobody has killed."""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from tests.jobs.test_pool import state
from tests.tiny import tiny

from afterword.cli import main

ROWS, SHARD_ROWS = 120, 2


def contents(folder: Path) -> dict[str, bytes]:
    """The shards of a job, and its list of rejected rows."""
    return {path.name: path.read_bytes() for path in [*(folder / "shards").glob("*.parquet"), folder / "rejects.jsonl"]}


def child_of(pid: int) -> list[int]:
    """The processes that a process has started."""
    return [int(one) for task in Path(f"/proc/{pid}/task").glob("*/children") for one in task.read_text().split()]


def killed(words: list[str], done: Path, chance: Random) -> list[int]:
    """Run a command line in a child; kill it, or one worker first, when it has done some shards or none.

    Returns:
        Its workers.
    """
    driver = os.fork()
    if not driver:
        for stream in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
        os._exit(main(words))
    enough = len(list(done.glob("*.parquet"))) + chance.randrange(8)
    workers: list[int] = []
    while len(list(done.glob("*.parquet"))) < enough and not os.waitid(
        os.P_PID, driver, os.WEXITED | os.WNOHANG | os.WNOWAIT
    ):
        workers = child_of(driver) or workers
        time.sleep(0.002)
    time.sleep(chance.random() * 0.02)
    if workers and chance.random() < 0.3:
        with suppress(ProcessLookupError):  # it may have ended by itself
            os.kill(chance.choice(workers), signal.SIGKILL)
        time.sleep(chance.random() * 0.02)
    workers = [*{*workers, *child_of(driver)}]
    os.kill(driver, signal.SIGKILL)
    os.waitpid(driver, 0)
    return workers


@pytest.mark.slow
@pytest.mark.parametrize("kills", [4, pytest.param(50, marks=pytest.mark.soak)])
def test_a_job_killed_at_random_times_loses_nothing(tmp_path: Path, chance: Random, kills: int):
    model = tiny("gpt2", tmp_path / "gpt2")
    texts = tmp_path / "texts.txt"
    texts.write_text("".join("\n" if i % 17 == 5 else f"Text {i} on {i % 9} banks.\n" for i in range(ROWS)))
    command = ["embed", "-m", str(model), "--method", "classical", "-i", str(texts), "--shard-rows", str(SHARD_ROWS)]
    whole, folder = tmp_path / "whole", tmp_path / "job"
    assert main([*command, "-o", f"{whole}/"]) == 1
    words = [*command, "-o", f"{folder}/"]
    for _ in range(kills):
        for worker in killed([*words, "--workers", "2", "--threads", "1"], folder / "shards", chance):
            end = time.monotonic() + 60
            while state(worker) not in ("gone", "Z"):
                assert time.monotonic() < end, "a worker outlives its driver"
                time.sleep(0.01)
        if (folder / "rejects.jsonl").exists():
            for path in chance.sample(sorted((folder / "shards").glob("*.parquet")), 20):
                path.unlink()
    assert main(words) == 1
    assert contents(folder) == contents(whole) and len(contents(whole)) > ROWS / SHARD_ROWS
    assert main(["job", "verify", str(folder)]) == 0
