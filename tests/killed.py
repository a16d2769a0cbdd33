"""A command line in a forked process, which ends at a chosen one of its calls that change files."""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from afterword.cli import main

CALLS = "fsync replace link unlink rmdir mkdir".split()
"""What a run does to files, one call after the other: between any two of these it may be killed."""


def watched(see: Callable[[str, Any], None]) -> None:
    """Call `see` before each of these calls, with its name and its first argument, from now on."""

    def one(name: str) -> None:
        real = getattr(os, name)

        def spy(first: Any, *rest: Any, **options: Any) -> Any:
            see(name, first)
            return real(first, *rest, **options)

        setattr(os, name, spy)

    for name in CALLS:
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


def _child(words: list[object], log: Path, at: int | None, by: int) -> int:
    err, calls = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), log.with_suffix(".calls").open("w", buffering=1)
    os.dup2(err, 2)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
    seen = 0

    def see(name: str, first: Any) -> None:
        nonlocal seen
        where = os.readlink(f"/proc/self/fd/{first}") if isinstance(first, int) else os.fspath(first)
        if not where.startswith(f"{log.parent}"):  # a cache, which the next run finds filled
            return
        if seen == at:
            os.kill(os.getpid(), by)
        calls.write(f"{name} {where}\n")
        seen += 1

    watched(see)
    return main([str(word) for word in words])
