"""What runs on a Ray cluster: actors that do shards, and one that counts how often each was begun.

This file imports nothing heavy: an actor that is started anew does so once more.
"""

from __future__ import annotations

import os
import pickle
import socket
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..errors import DataError, ModelError, one_line
from .workers_child import ends_run, sent

if TYPE_CHECKING:
    from .pool import Do, Worker

GONE = "was on an actor of Ray that ended"


class Attempts:
    """Counts how often shards were begun, in an actor: the actor that begins one may die of it.

    If its own node dies, Ray starts it anew, and it counts from 0.
    """

    def __init__(self) -> None:
        self.deaths: dict[int, list[str]] = {}
        self.begun: Counter[int] = Counter()
        self.starts = 0

    def start(self) -> int:
        """Note that a model is being loaded; how often that has begun since one was ready."""
        self.starts += 1
        return self.starts

    def ready(self) -> None:
        """Note that a model was loaded."""
        self.starts = 0

    def begin(self, number: int) -> list[str]:
        """Note that a shard is begun; why it was not done before, once for each time."""
        whys = self.deaths.setdefault(number, [])
        whys += [GONE] * (self.begun[number] - len(whys))
        self.begun[number] += 1
        return whys

    def died(self, number: int, why: str) -> None:
        """Note why the actor that has begun a shard is about to end."""
        self.deaths.setdefault(number, []).append(why)


def enter(place: str) -> None:
    """Make a folder the current one.

    Raises:
        DataError: this machine does not have it.
    """
    try:
        os.chdir(place)
    except OSError as e:
        raise DataError(
            f"{place} on {socket.gethostname()}: {e.strerror}: start from a folder that all machines share"
        ) from None


class Shards:
    """Does shards, in an actor of Ray.

    Args:
        worker: loads the model, when the first shard comes.
        attempts: the actor that counts.
        tokens: the number of tokens in a batch, for each time that a shard may be begun; None = the worker's own.
        starts: how often loading may begin before one model is ready.
        place: the folder from which the driver's relative paths lead, the same on every machine.
    """

    def __init__(self, worker: Worker, attempts: Any, tokens: Sequence[int | None], starts: int, place: str) -> None:
        self.worker, self.attempts, self.tokens, self.starts = worker, attempts, tokens, starts
        self.place = place
        self.do: Do | None = None

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """The shard of a batch with one number, with what became of it: see `told`."""
        number = int(batch["item"][0])
        deaths = self._ask("begin", number)
        try:
            if len(deaths) >= len(self.tokens):
                kind, content = "failed", deaths.pop()
            else:
                kind, content = "done", self._ready()(number, self.tokens[len(deaths)])
        except Exception as e:
            if not ends_run(e):
                self._ask("died", number, f"raised {type(e).__name__}: {one_line(str(e))}")
                os._exit(1)  # Ray starts another one
            kind, content = "refused", sent(e)
        return {"item": [number], "said": [pickle.dumps((kind, content, deaths))]}

    def _ready(self) -> Do:
        if self.do is None:
            enter(self.place)
            if self._ask("start") > self.starts:
                raise ModelError(f"{self.starts} actors of Ray ended before their first shard")
            self.do = self.worker.start(int(os.environ["OMP_NUM_THREADS"]))
            self._ask("ready")
        return self.do

    def _ask(self, name: str, *arguments: Any) -> Any:
        import ray

        return ray.get(getattr(self.attempts, name).remote(*arguments))
