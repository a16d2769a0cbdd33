"""A command line in a forked process: it ends at a chosen one of its calls that change files, or reads from a pipe."""

import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing import get_context, resource_tracker
from pathlib import Path
from typing import IO, Any

from afterword.cli import main

CALLS = "fsync replace link unlink rmdir mkdir".split()
"""What a run does to files, one call after the other: between any two of these it may be killed."""
TABLE_CALLS = "_do_merge delete create_index drop_index update_field_metadata optimize".split()
"""What a run does to a table of LanceDB, each of which is a commit or more."""
LOADED = [
    "tests.killed",
    "afterword.encoder",
    "afterword.jobs.recipe",
    "transformers.models.gpt2.modeling_gpt2",
    "pyarrow.parquet",
]
"""What a process has loaded from which others are forked: each of them would take seconds for it."""


def watched(see: Callable[[str, Any], None], owner: Any = os, names: Sequence[str] = CALLS) -> None:
    """Call `see` before each of these calls, with its name and its first argument, from now on."""

    def one(name: str) -> None:
        real = getattr(owner, name)

        def spy(first: Any, *rest: Any, **options: Any) -> Any:
            see(name, first)
            return real(first, *rest, **options)

        setattr(owner, name, spy)

    for name in names:
        one(name)


def forked(words: list[object], log: Path, at: int | None = None, by: int = signal.SIGKILL) -> tuple[int, list[str]]:
    """Run a command line in a child, which sends itself a signal before the call with the number ``at``.

    Calls outside the folder of `log` do not count.

    Returns:
        The exit code, negative for a signal; and the calls, each as its name and the name of the file.
    """
    child = os.fork()
    if not child:
        code = 99
        try:
            code = _child(words, log, at, by)
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), log.with_suffix(".calls").read_text().splitlines()


def forked_without_lancedb(
    words: list[object], log: Path, at: int | None = None, tables: bool = False
) -> tuple[int, list[str]]:
    """As `forked` with SIGKILL, but forked from a process that has loaded torch and no LanceDB.

    LanceDB's threads are not in a fork of a process that has used it: now and then the child dies of signal 11. With
    `tables`, what it does to tables counts too.
    """
    context = get_context("forkserver")
    context.set_forkserver_preload(LOADED)
    child = context.Process(target=_exits, args=(words, log, at, tables))
    child.start()
    child.join()
    assert child.exitcode is not None
    return child.exitcode, log.with_suffix(".calls").read_text().splitlines()


def _exits(words: list[object], log: Path, at: int | None, tables: bool) -> None:
    assert "lancedb" not in sys.modules
    code = 99
    try:
        code = _child(words, log, at, signal.SIGKILL, tables)
    finally:
        os._exit(code)


def _child(words: list[object], log: Path, at: int | None, by: int, tables: bool = False) -> int:
    err, calls = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), log.with_suffix(".calls").open("w", buffering=1)
    os.dup2(err, 2)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
    seen = 0

    def see(name: str, first: Any) -> None:
        nonlocal seen
        if name in TABLE_CALLS:
            where = f"{log.parent}/table"
        else:
            where = os.readlink(f"/proc/self/fd/{first}") if isinstance(first, int) else os.fspath(first)
        if not where.startswith(f"{log.parent}"):  # a cache, which the next run finds filled
            return
        if seen == at:
            os.kill(os.getpid(), by)
        with suppress(OSError):  # a test may limit the size of files
            calls.write(f"{name} {where}\n")
        seen += 1

    watched(see)
    if tables:
        from lancedb.table import LanceTable

        watched(see, LanceTable, TABLE_CALLS)
    return main([str(word) for word in words])


class Piped:
    """A command line in a forked process that reads and writes pipes, as `subprocess.Popen` starts one."""

    stdin: IO[bytes]
    stdout: IO[bytes]
    stderr: IO[bytes]

    def __init__(self, *words: object) -> None:
        pipes = [os.pipe() for _ in range(3)]
        ends = (pipes[0][0], pipes[1][1], pipes[2][1])
        self.pid, self.returncode = os.fork(), 0
        if not self.pid:
            try:
                for target, end in enumerate(ends):
                    os.dup2(end, target)
                os.closerange(3, max(max(pair) for pair in pipes) + 1)
                tracker = resource_tracker._resource_tracker  # its pipe is the parent's, and closed here
                tracker._fd = tracker._pid = None
                sys.stdin, sys.stdout, sys.stderr = (
                    os.fdopen(i, "r" if i == 0 else "w", closefd=False) for i in range(3)
                )
                code = main([str(word) for word in words])
                sys.stdout.flush()
                sys.stderr.flush()
            except BaseException:
                code = 99
            os._exit(code)
        for end in ends:
            os.close(end)
        self.stdin, self.stdout, self.stderr = (
            os.fdopen(pair[1 if i == 0 else 0], "wb" if i == 0 else "rb") for i, pair in enumerate(pipes)
        )

    def ended(self) -> bool:
        """Whether it has ended by itself; only before `finish`."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def finish(self, last: bytes = b"") -> tuple[bytes, bytes]:
        """Write the end of its input, and wait: what it wrote to its output and to its errors (a few lines)."""
        with self.stdin:
            self.stdin.write(last)
        with self.stdout, self.stderr:
            told = self.stdout.read(), self.stderr.read()
        self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return told
