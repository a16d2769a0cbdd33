"""What embeds the shards of a job: this process, several, or Ray."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from ..errors import InputError
from .job import JobListener, Run, here
from .on_ray import run_on_ray
from .pool import run_local
from .shard import ShardWorker
from .torch_threads import torch_threads
from .workers_cores import cores, share


def run_by(
    workers: int | Literal["auto"] | None = None,
    ray: str | None = None,
    threads: int | None = None,
    retries: int = 3,
    gpus: float = 0,
) -> Run:
    """What embeds the shards.

    Args:
        workers: the number of processes, or "auto" for what the cores are enough for; None = this process alone.
        ray: the address of a Ray cluster, or "auto"; "local" starts one on this machine; None = no Ray.
        threads: of each process.
        retries: how often a shard is tried again whose process died.
        gpus: of each process on Ray.

    Raises:
        InputError: there are fewer workers or threads than one, or fewer retries than none; or one is no number.
    """
    for name, number, least in (("workers", workers, 1), ("threads", threads, 1), ("retries", retries, 0)):
        if number is None or (name == "workers" and number == "auto"):
            continue
        if type(number) is not int or number < least:
            raise InputError(f"{name}={number!r}: give {least} or more")
    if ray is not None:
        return _on_ray(ray, None if workers == "auto" else workers, threads or 1, retries, gpus)
    if workers is not None:
        return _local(workers, threads, retries)
    return here if threads is None else _here(threads)


def _here(threads: int) -> Run:
    def alone(worker: ShardWorker, numbers: Sequence[int], listener: JobListener) -> Mapping[int, str]:
        with torch_threads(threads):
            return here(worker, numbers, listener)

    return alone


def _local(workers: int | Literal["auto"], threads: int | None, retries: int) -> Run:
    count = share(cores()) if workers == "auto" else workers

    def local(worker: ShardWorker, numbers: Sequence[int], listener: JobListener) -> Mapping[int, str]:
        return run_local(worker, numbers, workers=count, threads=threads, retries=retries, listener=listener).failed

    return local


def _on_ray(address: str, workers: int | None, threads: int, retries: int, gpus: float) -> Run:
    def on_ray(worker: ShardWorker, numbers: Sequence[int], listener: JobListener) -> Mapping[int, str]:
        return run_on_ray(
            worker, numbers, address=None if address == "local" else address, workers=workers, threads=threads,
            gpus=gpus, retries=retries, listener=listener,
        ).failed  # fmt: skip

    return on_ray
