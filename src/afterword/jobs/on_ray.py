"""Do numbered shards on the machines of a Ray cluster, or embed the texts of a Ray Data set of one's own.

The rows of the data set are the numbers of shards: an actor loads the model once, does the shards that it is given in
the job's folder, which all machines share, and gives markers back. No text and no vector enters Ray's object store. Ray
restarts an actor that died and gives its shard out again; how often that has happened is counted here.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ..encoder import Encoder
from ..errors import DataError, MissingExtra, one_line
from ..methods.serialize import parse_method
from .pool import PATIENCE, STARTS, THREADS, Outcome, ShardListener, Worker, fewer_tokens
from .workers_cores import cores
from .workers_ray import Attempts, Shards

STORE = 80 * 2**20  # bytes of the object store of a Ray that is started here; Ray's least is 75 MB


def run_on_ray(
    worker: Worker,
    numbers: Iterable[int],
    *,
    address: str | None = None,
    workers: int | None = None,
    threads: int = 1,
    gpus: float = 0,
    retries: int = 3,
    listener: ShardListener,
) -> Outcome:
    """Do shards on Ray.

    Args:
        worker: what each actor is started with.
        numbers: of the shards.
        address: of the cluster: "auto", "HOST:PORT" or "ray://HOST:PORT"; None = a Ray of this machine, which ends with
            the run. A Ray that the caller has started is used, whatever the address.
        workers: the number of actors; None = as many as the cluster's cores are enough for.
        threads: of each actor: the cores that it takes.
        gpus: of each actor; less than 1 is a share of one.
        retries: how often a shard is done again after its actor died.
        listener: is told of each shard.

    Raises:
        AfterwordError, OSError: as `run_local` does.
        DataError: there is no cluster at the address.
        MissingExtra: Ray is not installed.
    """
    waiting = list(numbers)
    if not waiting:
        return Outcome(0, {})
    with connected(address) as ray:
        size = workers or max(1, int(ray.cluster_resources().get("CPU", 1)) // threads)
        again = {"max_restarts": -1, "max_task_retries": -1}
        attempts = ray.remote(num_cpus=0, **again)(Attempts).remote()
        tokens = [fewer_tokens(worker.batch_tokens, deaths) for deaths in range(retries + 1)]
        shards = ray.data.from_items(waiting, override_num_blocks=len(waiting)).map_batches(
            Shards,
            fn_constructor_args=(worker, attempts, tokens, STARTS + size, os.getcwd()),
            batch_size=1,
            compute=ray.data.ActorPoolStrategy(size=min(size, len(waiting)), max_tasks_in_flight_per_actor=2),
            num_cpus=threads,
            num_gpus=gpus,
            runtime_env={"env_vars": dict.fromkeys(THREADS, str(threads))},
        )
        shards.context.enable_progress_bars = False
        shards.context.print_on_execution_start = False
        shards.context.execution_no_progress_timeout_s = -1  # a shard may take as long as it takes
        return told(shards.iter_batches(batch_size=1, prefetch_batches=0), listener)


def told(batches: Iterable[Mapping[str, Any]], listener: ShardListener) -> Outcome:
    """Tell of each shard as it comes back, in any order.

    Raises:
        AfterwordError, OSError: the error that an actor has sent.
    """
    done, failed = 0, dict[int, str]()
    for batch in batches:
        number, (kind, content, deaths) = int(batch["item"][0]), pickle.loads(batch["said"][0])
        for why in deaths:
            listener.retried(number, why)
        if kind == "refused":
            raise content
        if kind == "failed":
            failed[number] = content
            listener.failed(number, content)
        else:
            done += 1
            listener.done(number, content)
    return Outcome(done, failed)


@contextmanager
def connected(address: str | None) -> Iterator[Any]:
    """The module `ray`, connected to a cluster for the time of the block.

    Args:
        address: see `run_on_ray`.

    Raises:
        DataError: there is no cluster at the address.
        MissingExtra: Ray is not installed.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent anywhere
    try:
        import ray
        import ray.data
    except ImportError:
        raise MissingExtra("ray", "ray") from None
    if ray.is_initialized():
        yield ray
        return
    quiet = {"logging_level": "ERROR", "log_to_driver": False}
    local = {"num_cpus": cores(), "object_store_memory": STORE, "include_dashboard": False,
             "_node_ip_address": "127.0.0.1"}  # fmt: skip
    check_reachable(address)
    with own_sigterm():
        try:
            ray.init(address or "local", **quiet, **({} if address else local))
        except (ConnectionError, ValueError, RuntimeError) as e:
            raise DataError(f"no Ray at {address or 'this machine'}: {one_line(str(e))}") from None
    try:
        yield ray
    finally:
        ray.shutdown()


def check_reachable(address: str | None) -> None:
    """Refuse an address where nothing listens: Ray itself would look for it for minutes.

    Raises:
        DataError: nothing answers there.
    """
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if not host:  # "auto", or a Ray of this machine
        return
    try:
        socket.create_connection((host, int(port)), PATIENCE).close()
    except (OSError, ValueError) as e:
        raise DataError(f"no Ray at {address}: {one_line(str(e))}") from None


@contextmanager
def own_sigterm() -> Iterator[None]:
    """Keep what SIGTERM does in this process: Ray puts a handler of its own in that place."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class Embed:
    """Adds the vectors of a column of texts to a Ray Data set: ``ds.map_batches(Embed, fn_constructor_args=(MODEL,))``.

    Args:
        model: as `Encoder.load` takes it.
        method: as ``--method`` spells it; None = the model's own.
        column: of the texts; ``vectors`` is the one that is added.
        load: more arguments of `Encoder.load`.
        options: of `Encoder.encode`.

    >>> from afterword.jobs.on_ray import Embed
    >>> batch = Embed("afterword-mini")({"text": ["The bank of the river."]})
    >>> batch["vector"].shape
    (1, 256)
    """

    def __init__(
        self,
        model: str,
        method: str | None = None,
        *,
        column: str = "text",
        vectors: str = "vector",
        load: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self.encoder = Encoder.load(model, None if method is None else parse_method(method), **(load or {}))
        self.column, self.vectors, self.options = column, vectors, options

    def __call__(self, batch: dict[str, Sequence[Any]]) -> dict[str, Any]:
        """The batch with a column of vectors (n, D)."""
        return {**batch, self.vectors: self.encoder.encode(list(batch[self.column]), **self.options)}
