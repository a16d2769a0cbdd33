"""A worker's process, in this process: what it sends, and when it ends."""

import errno
import os
import pickle
from collections.abc import Mapping, Sequence
from multiprocessing import Pipe
from pathlib import Path
from threading import Thread
from threading import enumerate as enumerate_threads
from typing import Any

import pytest
from tests.toy_worker import Toy

from afterword.errors import BadRow, DataError, MissingDataset
from afterword.jobs.workers_child import ends_run, sent, serve


def words(toy: Toy, *tasks: tuple[int, int | None]) -> list[tuple[str, Any]]:
    """What a worker says until its first error."""
    ours, theirs = Pipe()
    before = set(enumerate_threads())
    serving = Thread(target=serve, args=(theirs,))
    serving.start()
    ours.send_bytes(pickle.dumps(toy))
    for task in tasks:
        ours.send(task)
    serving.join()
    found = []
    while ours.poll():
        found.append(ours.recv())
    ours.close()
    # Its reader sees that the pipe is closed, and must end before the test does, which gives os._exit back.
    for reader in set(enumerate_threads()) - before:
        reader.join()
    theirs.close()
    return found


@pytest.fixture(autouse=True)
def left(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The thread that reads the pipe ends the process; here it is only noted."""
    codes: list[int] = []
    monkeypatch.setattr(os, "_exit", codes.append)
    return codes


@pytest.mark.parametrize(
    ("faults", "last"),
    [
        ({5: ["bug"]}, ("died", "raised RuntimeError: no idea")),
        ({5: ["input"]}, ("refused", "a.txt has changed")),
        ({5: ["row"]}, ("refused", "a.txt:3: is blank")),
    ],
)
def test_it_says_what_it_did(
    tmp_path: Path, left: list[int], faults: Mapping[int, Sequence[str]], last: tuple[str, str]
):
    ready, done, (kind, error) = words(Toy(tmp_path, faults), (4, None), (5, 16))
    assert ready == ("ready", None)
    assert done == ("done", {"rows": 4, "pid": os.getpid()})
    assert (kind, str(error)) == last
    assert left == [1], "its process ends when nobody gives it shards"


def test_an_error_at_the_start(tmp_path: Path):
    ((kind, error),) = words(Toy(tmp_path, starts=["input"] * 9))
    assert kind == "refused" and type(error) is DataError


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (DataError("a"), True),
        (OSError(errno.ENOSPC, "full"), True),
        (PermissionError(errno.EACCES, "no"), True),
        (OSError(errno.EIO, "broken"), False),
        (MemoryError(), False),
        (RuntimeError("CUDA out of memory"), False),
    ],
)
def test_which_errors_end_the_run(error: Exception, expected: bool):
    assert ends_run(error) is expected


def test_an_error_keeps_its_class_where_it_can():
    assert type(sent(MissingDataset("no a.txt"))) is MissingDataset
    changed = sent(BadRow("a.txt", 3, "is blank"))
    assert type(changed) is DataError and str(changed) == "a.txt:3: is blank"

    class Local(DataError):
        pass

    assert type(sent(Local("a"))) is DataError
