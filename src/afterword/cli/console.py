"""What a run says on stderr, one line each, and how it ends: a last line and an exit code, never a traceback."""

from __future__ import annotations

import logging
import os
import statistics
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import typer

from ..errors import AfterwordError, TextsCut

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


def say(line: str) -> None:
    """One line on stderr."""
    with suppress(OSError, ValueError):  # a closed stderr is no reason to fail
        print(" ".join(line.split()), file=sys.stderr, flush=True)


@contextmanager
def heard() -> Iterator[None]:
    """Warnings and log messages as one line each; a warning once; texts that were cut summed up at the end."""
    cut, seen = Tally(), set[str]()

    def show(message: Any, *_: Any, **__: Any) -> None:
        if isinstance(message, TextsCut):
            cut.add(message.lost, message.texts, message.max_length)
        elif str(message) not in seen:
            seen.add(str(message))
            say(f"warning: {message}")

    handler, logger = _Lines(), logging.getLogger("afterword")
    with warnings.catch_warnings():
        warnings.resetwarnings()
        for quiet in (DeprecationWarning, PendingDeprecationWarning, FutureWarning, ImportWarning, ResourceWarning):
            warnings.simplefilter("ignore", quiet)
        warnings.simplefilter("always", UserWarning, append=True)
        warnings.showwarning = show
        logger.addHandler(handler)
        try:
            yield
        finally:
            logger.removeHandler(handler)
            cut.say()


class _Lines(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        """Say a message in one line."""
        say(f"{record.levelname.lower()}: {record.getMessage()}")


@dataclass
class Tally:
    """Texts that were cut, over all windows of a run."""

    lost: Counter[int] = field(default_factory=Counter)
    texts: int = 0
    max_length: int | None = None

    def add(self, lost: Sequence[int], texts: int, max_length: int | None) -> None:
        """Count those of a window."""
        self.lost.update(lost)
        self.texts += texts
        self.max_length = max_length

    def say(self) -> None:
        """Tell how many there were, and what they lost."""
        if self.lost:
            say(
                f"warning: {self.lost.total()} texts were cut to {self.max_length} tokens: they lost "
                f"{statistics.median(self.lost.elements()):.0f} tokens in the middle, {max(self.lost)} at most"
            )


def shown(text: str) -> Any:
    r"""A text on one line, without anything that a terminal would obey.

    >>> shown("a\nb").plain
    'a b'
    """
    from rich.text import Text

    return Text("".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in " ".join(text.split())))
