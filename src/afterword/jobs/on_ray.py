"""Embed the shards of a job on a Ray cluster, or the texts of a Ray Data set."""

from __future__ import annotations

import os
import pickle
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..encode.processes import cores, picklable
from ..errors import AfterwordError, DataError, MissingExtra, ModelError, one_line

if TYPE_CHECKING:
    from . import Listener
    from .shard import ShardEmbedder, ShardWorker

STORE = 80 * 2**20  # bytes of the object store of a Ray that is started here; Ray's least is 75 MB


def run_on_ray(
    worker: ShardWorker, numbers: Sequence[int], listener: Listener, address: str | None = None,
    workers: int | None = None, threads: int = 1, gpus: float = 0,
) -> None:  # fmt: skip
    """Embed shards in actors of a Ray cluster, which share the job's folder; only numbers of shards go through Ray.

    Args:
        worker, numbers, listener: as for `run.Run`.
        address: "auto", "HOST:PORT" or "ray://HOST:PORT"; None starts a Ray of this machine, which ends with the run.
            A Ray that the caller has started is used, whatever the address.
        workers: number of actors; None = as many as the cluster's cores are enough for.
        threads, gpus: of each actor.
    """
    with connected(address) as ray:
        size = workers or max(1, int(ray.cluster_resources().get("CPU", 1)) // threads)
        shards = ray.data.from_items(list(numbers), override_num_blocks=len(numbers)).map_batches(
            Shards, fn_constructor_args=(worker, os.getcwd()), batch_size=1, num_cpus=threads, num_gpus=gpus,
            compute=ray.data.ActorPoolStrategy(size=min(size, len(numbers)), max_tasks_in_flight_per_actor=2),
            runtime_env={"env_vars": {"OMP_NUM_THREADS": str(threads)}},
        )  # fmt: skip
        shards.context.enable_progress_bars = shards.context.print_on_execution_start = False
        shards.context.execution_no_progress_timeout_s = -1  # a shard takes as long as it takes
        try:
            for batch in shards.iter_batches(batch_size=1, prefetch_batches=0):
                found = pickle.loads(batch["found"][0])
                if isinstance(found, Exception):
                    raise found
                listener.more(found["rows"])
                listener.done(int(batch["item"][0]), found)
        except ray.exceptions.RayError as e:
            raise ModelError(f"Ray ended the run, which the same command resumes: {one_line(str(e)):.300}") from None


class Shards:
    """Embed shards in an actor; relative paths lead from ``place``, the driver's folder."""

    def __init__(self, worker: ShardWorker, place: str) -> None:
        self.worker, self.place = worker, place
        self.do: ShardEmbedder | None = None

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Embed the shard of a batch; its counts, or the error that ends the run, are pickled."""
        number = int(batch["item"][0])
        try:
            os.chdir(self.place)
            self.do = self.do or self.worker.start(lambda _: None)
            found: Any = self.do(number)
        except (AfterwordError, OSError) as e:
            found = picklable(e)
        return {"item": [number], "found": [pickle.dumps(found)]}


@contextmanager
def connected(address: str | None) -> Iterator[Any]:
    """Connect to a cluster for the time of the block; yields the module `ray`."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent anywhere
    try:
        import ray
        import ray.data
    except ImportError:
        raise MissingExtra("ray", "ray") from None
    if ray.is_initialized():
        yield ray
        return
    local = {"num_cpus": cores(), "object_store_memory": STORE, "include_dashboard": False,
             "_node_ip_address": "127.0.0.1"}  # fmt: skip
    check_reachable(address)
    try:
        ray.init(address or "local", logging_level="ERROR", log_to_driver=False, **({} if address else local))
    except (ConnectionError, ValueError, RuntimeError) as e:
        raise DataError(f"no Ray at {address or 'this machine'}: {one_line(str(e))}") from None
    try:
        yield ray
    finally:
        ray.shutdown()


def check_reachable(address: str | None) -> None:
    """Raise a DataError if nothing answers at an address: Ray itself would wait for minutes."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if not host:  # "auto", or a Ray of this machine
        return
    try:
        socket.create_connection((host, int(port)), 5).close()
    except (OSError, ValueError) as e:
        raise DataError(f"no Ray at {address}: {one_line(str(e))}") from None
