"""Workers that are forks of their driver, not programs that start anew: 0.1 s of CPU each, where torch alone takes 4.

What happens after the start is the same: pipes, models, shards, deaths. Workers start anew in tests/jobs/test_pool.py,
in the tests of the command line with ``--workers``, and everywhere with AFTERWORD_CHECK_ALL=1, which `make soak` sets.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing import Pipe
from tempfile import TemporaryFile
from typing import Any

import pytest
from tests.less_repetition import ALL

from afterword.jobs import pool, workers_child


class Forked:
    """A process that was forked, with what the pool asks of `subprocess.Popen`."""

    def __init__(self, pid: int) -> None:
        self.pid, self.returncode = pid, None

    def wait(self, timeout: float | None = None) -> int:
        end = None if timeout is None else time.monotonic() + timeout
        while self.returncode is None:
            found, status = os.waitpid(self.pid, 0 if end is None else os.WNOHANG)
            if found:
                self.returncode = os.waitstatus_to_exitcode(status)
            elif end is not None and time.monotonic() > end:
                raise subprocess.TimeoutExpired("a forked worker", timeout or 0)
            else:
                time.sleep(0.001)
        return self.returncode

    def kill(self) -> None:
        if self.returncode is None:
            os.kill(self.pid, signal.SIGKILL)


def fork(written: bytes, environment: Mapping[str, str]) -> pool.Child:
    """`pool.spawn` by a fork, which keeps no open file but the pipe: the driver's other pipes end with the driver."""
    ours, theirs = Pipe()
    said = TemporaryFile()  # noqa: SIM115
    pid = os.fork()
    if not pid:
        code = 1
        try:
            os.setsid()
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.environ.update(environment)
            for stream in (1, 2):
                os.dup2(said.fileno(), stream)
            os.closerange(3, theirs.fileno())
            os.closerange(theirs.fileno() + 1, os.sysconf("SC_OPEN_MAX"))
            workers_child.main(theirs.fileno())
            code = 0
        finally:
            os._exit(code)
    theirs.close()
    with suppress(OSError):  # it has died already
        ours.send_bytes(written)
    process: Any = Forked(pid)
    return pool.Child(process, ours, said)


@pytest.fixture
def forked_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drivers that are forked from here on fork their workers."""
    if not ALL:
        monkeypatch.setattr(pool, "spawn", fork)
