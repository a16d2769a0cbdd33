"""Spawned processes that each hold one loaded object: a copy of a model, or the encoder of a job."""

from __future__ import annotations

import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any


class ProcessPool:
    """A `ProcessPoolExecutor` whose processes load an object once, and end with the process that started them.

    The processes are spawned: a script that starts them needs ``if __name__ == "__main__":``.

    Args:
        start: loads the object of a process, as ``start(*shared, own[i])``; a module's function.
        shared: arguments that all processes get.
        own: the last argument of each process; one process is started for each.
    """

    def __init__(self, start: Callable[..., Any], shared: tuple[Any, ...], own: Sequence[Any]) -> None:
        context = get_context("spawn")
        reader, self._alive = context.Pipe(duplex=False)
        turns = context.SimpleQueue()
        for turn in range(len(own)):
            turns.put(turn)
        self._executor = ProcessPoolExecutor(len(own), context, _begin, (reader, turns, start, shared, tuple(own)))

    def submit(self, do: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Schedule ``do(held, *arguments)`` in a process, where ``held`` is the object that it loaded.

        Raises:
            BrokenProcessPool: a process ended by itself, here or from the future's ``result()``.
        """
        with _without_ctrl_c():  # a process that starts now inherits this: Ctrl-C ends it through the parent
            return self._executor.submit(_call, do, arguments)

    def close(self) -> None:
        """End the processes at once, also in the middle of a task."""
        self._executor.shutdown(wait=False, cancel_futures=True)
        self._alive.close()
        self._executor.shutdown(wait=True)


@contextmanager
def _without_ctrl_c() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def cores() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


_HELD: list[tuple[Any, Exception | None]] = []
"""What this process holds, or why it could not be loaded, in a process of a pool."""


def _begin(
    parent: Connection, turns: Any, start: Callable[..., Any], shared: tuple[Any, ...], own: tuple[Any, ...]
) -> None:
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    try:
        _HELD.append((start(*shared, own[turns.get()]), None))
    except Exception as e:  # raised by the first task: an error here would break the pool without its message
        _HELD.append((None, e))


def _end_with(parent: Connection) -> None:
    """End this process when the parent closes its end of the pipe, or is killed."""
    try:
        parent.recv()
    except (EOFError, OSError):
        os._exit(1)


def _call(do: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    held, error = _HELD[0]
    try:
        if error is not None:
            raise error
        return do(held, *arguments)
    except Exception as e:
        raise picklable(e) from None


def picklable(error: Exception) -> Exception:
    """The error, or the nearest of its base classes with its text, if another process could not read it.

    >>> from afterword.errors import BadRow
    >>> picklable(BadRow("a.csv", 3, "has no text"))
    DataError('a.csv:3: has no text')
    """
    for cls in type(error).__mro__[: type(error).__mro__.index(Exception)]:
        made: Any = None
        with suppress(Exception):
            made = error if cls is type(error) else cls(str(error))
            copy = pickle.loads(pickle.dumps(made))
            if str(copy) == str(error):
                return made  # type: ignore[no-any-return]
    return RuntimeError(f"{type(error).__name__}: {error}")
