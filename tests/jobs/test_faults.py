"""What happens to a job when something fails, for real: a later run of the same command gives the same bytes."""

import json
import os
import resource
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
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


def gone(pids: list[int]) -> bool:
    """Whether processes end within a minute."""
    for _ in range(6000):
        if not any(runs(pid) for pid in pids):
            return True
        time.sleep(0.01)
    return False


def runs(pid: int) -> bool:
    """Whether a process has not ended; one that nobody has waited for has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_second_driver_is_refused(
    command: Callable[..., list[object]], wanted: dict[str, bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words, folder = command(tmp_path / "job"), tmp_path / "job"
    first = Started(words, folder)
    first.wait_for(1)
    os.kill(first.pid, signal.SIGSTOP)
    before = {path: path.read_bytes() for path in (folder / "shards").glob("*.parquet")}
    assert main([str(word) for word in words]) == 2
    assert f"another process is writing {folder}" in capsys.readouterr().err
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
    assert len(workers) >= 2 and gone(workers)
    ended_well(command(folder), folder, wanted)
