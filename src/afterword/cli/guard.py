"""How a run ends: one line on stderr and an exit code, never a traceback."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import typer

from ..errors import AfterwordError
from .heard import heard, say

REJECTED, WRONG, BUG, INTERRUPTED, UNREAD = 1, 2, 70, 130, 141
# Typer brings its own copy of click or uses the installed one, by its version: its base class of errors either way.
ClickError: Any = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")


@dataclass
class State:
    """What the whole run shares.

    Attributes:
        debug: let errors show where they came from.
    """

    debug: bool = False


def guarded(run: Callable[[], Any], state: State) -> int:
    """Run a command; whatever happens, end in one line.

    Args:
        run: returns an exit code, or None for 0.
        state: filled in by the command line.

    Returns:
        The exit code.
    """
    with heard():
        try:
            code = run()
            sys.stdout.flush()
            if code == INTERRUPTED:  # typer has caught Ctrl-C
                say("interrupted")
        except BaseException as e:
            if isinstance(e, SystemExit) and isinstance(e.__context__, BrokenPipeError):  # and a closed pipe
                e = e.__context__
            if state.debug and not isinstance(e, KeyboardInterrupt | BrokenPipeError):
                traceback.print_exc()
            line, code = ending(e)
            if line:
                say(line)
            _leave_stdout(e)
    return int(code or 0)


def ending(error: BaseException) -> tuple[str, int]:
    """The last line and the exit code of a run that an error ended.

    >>> ending(KeyboardInterrupt())
    ('interrupted', 130)
    """
    if isinstance(error, SystemExit | typer.Exit):
        code = getattr(error, "exit_code", getattr(error, "code", 0))
        return "", code if isinstance(code, int) else int(code is not None)
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        return "interrupted", INTERRUPTED
    if isinstance(error, BrokenPipeError):
        return "", UNREAD
    if isinstance(error, ClickError):
        return f"error: {error.format_message()}", WRONG
    if isinstance(error, AfterwordError):
        return f"error: {error}", WRONG
    if isinstance(error, OSError):
        what = error.filename if error.filename is not None else "the standard output"
        return f"error: {what}: {error.strerror or error}", WRONG
    if isinstance(error, MemoryError):
        return "error: out of memory: lower --batch-tokens or --max-length", WRONG
    return f"bug: {type(error).__name__}: {error}; afterword --debug shows where", BUG


def _leave_stdout(error: BaseException) -> None:
    """Python flushes stdout once more when it ends; where that cannot work it would print a traceback of its own."""
    if isinstance(error, OSError):
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
