"""Where the shards of a job are embedded: in this process, in several processes of this machine, or on Ray."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import Any, Literal, Protocol

import torch

from ..encode.process_pool import ProcessPool, cores
from ..errors import InputError, ModelError
from .on_ray import run_on_ray

SECONDS = 0.5  # between two reports of progress

Do = Callable[[int], dict[str, Any]]
"""Embeds the shard of a number and returns what it counted; the same shard each time."""


class Worker(Protocol):
    """What a process needs to embed shards; it is pickled once for each process."""

    def start(self, report: Callable[[float], None]) -> Do:
        """Load the model; ``report`` is called with numbers of rows while they are embedded."""


class ShardListener(Protocol):
    """Progress callbacks, called in the caller's own thread."""

    def more(self, rows: float) -> None:
        """Called with the number of rows that were embedded since the last call."""

    def done(self, number: int, counts: dict[str, Any]) -> None:
        """Called when a shard is finished."""


Run = Callable[[Worker, Sequence[int], ShardListener], None]
"""Embeds the shards of these numbers."""


def run_by(
    workers: int | Literal["auto"] | None = None, ray: str | None = None, threads: int | None = None, gpus: float = 0
) -> Run:
    """Choose what embeds the shards.

    Args:
        workers: number of processes, or "auto" for one process per two cores; None = this process alone.
        ray: address of a Ray cluster, or "auto"; "local" starts one on this machine; None = no Ray.
        threads: of each process.
        gpus: of each process on Ray.

    Raises:
        InputError: ``workers`` or ``threads`` is not a number of at least 1.
    """
    for name, number in (("workers", workers), ("threads", threads)):
        if number is not None and (name, number) != ("workers", "auto") and (type(number) is not int or number < 1):
            raise InputError(f"{name}={number!r}: give 1 or more")
    count = max(1, cores() // 2) if workers == "auto" else workers

    def run(worker: Worker, numbers: Sequence[int], listener: ShardListener) -> None:
        if not numbers:
            return
        if ray is not None:
            address = None if ray == "local" else ray
            run_on_ray(worker, numbers, listener, address, None if workers == "auto" else count, threads or 1, gpus)
        elif count is None:
            run_here(worker, numbers, listener, threads)
        else:
            run_local(worker, numbers, listener, count, threads)

    return run


def run_here(worker: Worker, numbers: Sequence[int], listener: ShardListener, threads: int | None = None) -> None:
    """Embed shards in this process, one after the other."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    try:
        do = worker.start(listener.more)
        for number in numbers:
            listener.done(number, do(number))
    finally:
        torch.set_num_threads(before)


def run_local(
    worker: Worker, numbers: Sequence[int], listener: ShardListener, workers: int, threads: int | None = None
) -> None:
    """Embed shards in several processes, which have ended when this returns or raises.

    Args:
        worker: loads the model in each process.
        numbers: of the shards.
        listener: called for each finished shard.
        workers: number of processes.
        threads: of each process; None = its share of the cores.

    Raises:
        AfterwordError, OSError: of the input, the model or the disk, as the first process raised it.
        ModelError: a process ended by itself.
    """
    embedded, seen = get_context("spawn").Value("d"), 0.0  # rows, counted by all processes
    pool = ProcessPool(_load, (worker, embedded), [threads or max(1, cores() // workers)] * min(workers, len(numbers)))
    try:
        running = {pool.submit(_do, number): number for number in numbers}
        while running:
            ended, _ = wait(running, SECONDS, FIRST_COMPLETED)
            now = embedded.get_obj().value  # without its lock, which a killed process may hold
            listener.more(now - seen)
            seen = now
            for future in ended:
                listener.done(running.pop(future), future.result())
    except BrokenProcessPool:
        raise ModelError(
            "a worker process ended by itself: if memory ran out, use fewer workers or a lower batch_tokens; a script "
            'that starts workers needs if __name__ == "__main__":; finished shards are kept'
        ) from None
    finally:
        pool.close()


def _load(worker: Worker, embedded: Any, threads: int) -> Do:
    torch.set_num_threads(threads)
    logging.disable(logging.WARNING)  # each process would repeat what loading says

    def report(rows: float) -> None:
        with embedded.get_lock():
            embedded.value += rows

    return worker.start(report)


def _do(do: Do, number: int) -> dict[str, Any]:
    return do(number)
