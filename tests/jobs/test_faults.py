"""What happens to a job when something fails, for real: a later run of the same command gives the same bytes."""

import json
import os
import resource
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from tests.jobs.test_pool import wait_for_end
from tests.killed import Piped, forked
from tests.tiny import tiny

from afterword.cli import main
from afterword.jobs.job import Job

TEXTS = [f"a bank {i} of the river" if i % 7 else "" for i in range(60)]
SHARDS = 20


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny("llama", tmp_path_factory.mktemp("llama"), tie_word_embeddings=True)


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("rows") / "in.jsonl"
    file.write_text("".join(json.dumps({"id": i, "text": t}) + "\n" for i, t in enumerate(TEXTS)))
    return file


@pytest.fixture
def command(llama: Path, rows: Path) -> Callable[..., list[object]]:
    def command(folder: Path, *more: object) -> list[object]:
        return ["embed", "-m", llama, "-i", rows, "-o", f"{folder}/", "--shard-rows", 3, *more]

    return command


@pytest.fixture(scope="module")
def wanted(llama: Path, rows: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of an unbroken run."""
    folder = tmp_path_factory.mktemp("whole") / "job"
    assert main(["embed", "-m", f"{llama}", "-i", f"{rows}", "-o", f"{folder}/", "--shard-rows", "3"]) == 1
    return files(folder)


def files(folder: Path) -> dict[str, bytes]:
    names = [*(folder / "shards").glob("*.parquet"), folder / "rejects.jsonl"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in names}


def ended_well(words: list[object], folder: Path, wanted: dict[str, bytes]) -> None:
    """The same command goes on to the files of an unbroken run."""
    assert main([str(word) for word in words]) == 1
    assert files(folder) == wanted and Job.open(folder).complete


class Started(Piped):
    """The command in a process of its own, with its workers."""

    def __init__(self, words: list[object], folder: Path) -> None:
        self.folder = folder
        super().__init__(*words)

    def wait_for(self, shards: int) -> None:
        """Wait until so many shards are done, or the command has ended."""
        while not self.ended() and len(list((self.folder / "shards").glob("*.parquet"))) < shards:
            time.sleep(0.005)

    def workers(self) -> list[int]:
        """The process ids of its workers."""
        return [int(pid) for pid in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()]

    def end(self) -> tuple[int, str]:
        """The exit code, and what was said."""
        said = self.finish()[1].decode()
        return self.returncode, said


def test_a_second_driver_is_refused(
    command: Callable[..., list[object]], wanted: dict[str, bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words, folder = command(tmp_path / "job"), tmp_path / "job"
    first = Started(words, folder)
    first.wait_for(1)
    os.kill(first.pid, signal.SIGSTOP)
    before = {path: path.read_bytes() for path in (folder / "shards").glob("*.parquet")}
    assert main([str(word) for word in words]) == 2
    assert f"another process is writing to {folder}" in capsys.readouterr().err
    assert before and all(path.read_bytes() == content for path, content in before.items())
    os.kill(first.pid, signal.SIGCONT)
    assert first.end()[0] == 1 and files(folder) == wanted


def test_a_full_disk(command: Callable[..., list[object]], wanted: dict[str, bytes], tmp_path: Path) -> None:
    log, folder = tmp_path / "runs" / "log", tmp_path / "runs" / "job"
    log.parent.mkdir()
    sizes = [len(content) for name, content in wanted.items() if name.startswith("shards")]
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (min(sizes) - 1, before[1]))
    try:
        code, _ = forked(command(folder), log)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert code == 2 and "finished shards are kept" in log.read_text()
    assert not list((folder / "shards").iterdir())
    ended_well(command(folder), folder, wanted)


@pytest.mark.parametrize("by", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.soak)])
def test_a_signal_ends_the_workers(
    command: Callable[..., list[object]], wanted: dict[str, bytes], tmp_path: Path, by: int
) -> None:
    words, folder = command(tmp_path / "job", "--workers", 2, "--threads", 1), tmp_path / "job"
    run = Started(words, folder)
    run.wait_for(2)
    workers = run.workers()
    os.kill(run.pid, by)
    code, said = run.end()
    assert code == 130 and "kept in" in said, said
    assert len(workers) >= 2
    wait_for_end(workers)
    ended_well(command(folder), folder, wanted)


ROWS, SHARD_ROWS = 120, 2


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
        wait_for_end(killed([*words, "--workers", "2", "--threads", "1"], folder / "shards", chance))
        if (folder / "rejects.jsonl").exists():
            for path in chance.sample(sorted((folder / "shards").glob("*.parquet")), 20):
                path.unlink()
    assert main(words) == 1
    assert files(folder) == files(whole) and len(files(whole)) > ROWS / SHARD_ROWS
    assert main(["job", "verify", str(folder)]) == 0
