"""Do numbered shards in several processes of this machine: a process that dies is replaced, and its shard done again.

A worker is started as a program of its own, `python -m afterword.jobs.workers_child`, not by `multiprocessing`: nothing
of the caller's script is imported again, so that it needs no ``if __name__ == "__main__":``, and the numbers of threads
are in its environment before torch is there. Numbers of shards go to it over a pipe, and markers come back, nothing
else. The pipe's end tells each side that the other one is gone.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from tempfile import TemporaryFile
from typing import IO, Any, Protocol

from ..encode.batches import TOKENS
from ..errors import ModelError, one_line, plural, warn
from .workers_cores import cores

THREADS = "OMP_NUM_THREADS MKL_NUM_THREADS OPENBLAS_NUM_THREADS RAYON_NUM_THREADS".split()
"""Variables with the number of threads; each library reads its own when it is loaded."""

STARTS = 3  # workers that may die one after the other before they are ready
SMALLEST = 16  # tokens in a batch, however often a shard's worker has died
PATIENCE = 5  # seconds that a process has to end by itself, once it has closed the pipe
LAST_WORDS = 2000  # bytes of what a dead worker has printed


class Do(Protocol):
    """Does a shard: the same shard each time, however often it is done."""

    def __call__(self, number: int, batch_tokens: int | None = None) -> dict[str, Any]:
        """Do a shard, or find that it is done.

        Args:
            number: of the shard.
            batch_tokens: the number of tokens in a batch, after deaths; None = the worker's own.

        Returns:
            The shard's marker, which can be pickled.
        """


class Worker(Protocol):
    """What a process needs to do shards; it is pickled once for each process.

    Attributes:
        batch_tokens: the number of tokens in a batch; None = the device's default.
    """

    @property
    def batch_tokens(self) -> int | None:
        """The number of tokens in a batch."""

    def start(self, threads: int | None = None) -> Do:
        """Load the model, in the process that is to do shards.

        Args:
            threads: of torch in this process; None = as many as there are. Without it torch takes at most as many as
                there are cores, whatever the environment says.
        """


class ShardListener(Protocol):
    """Is told what becomes of each shard, in the caller's own thread."""

    def done(self, number: int, marker: dict[str, Any]) -> None:
        """Called when a shard is done."""

    def retried(self, number: int, why: str) -> None:
        """Called when a worker has died at a shard, which will be done again."""

    def failed(self, number: int, error: str) -> None:
        """Called when a shard is given up."""


@dataclass(frozen=True)
class Outcome:
    """The end of a run.

    Attributes:
        done: the number of shards that are done.
        failed: the last error of each shard that was given up, by number.
    """

    done: int
    failed: dict[int, str]


def run_local(
    worker: Worker,
    numbers: Iterable[int],
    *,
    workers: int,
    threads: int | None = None,
    retries: int = 3,
    listener: ShardListener,
) -> Outcome:
    """Do shards in processes of this machine; they are gone when this returns or raises.

    A worker that ends (by a signal, for lack of memory, by an error that is a bug) is replaced. Its shard is done again
    after all others, in batches of half as many tokens, and is given up when that has happened ``retries`` times.

    Args:
        worker: what each process is started with.
        numbers: of the shards, in the order in which they are handed out.
        workers: the number of processes, at most.
        threads: of each process; None = its share of the cores.
        retries: how often a shard is done again after its worker died.
        listener: is told of each shard.

    Raises:
        AfterwordError: of a worker: the input or the model cannot be used, so that no other shard can be done either.
        OSError: of a worker that cannot write: the disk is full, or the folder cannot be written.
        ModelError: three workers in succession ended before they were ready.
    """
    around = environment(workers, threads)  # also for the last shard alone: as many threads give the same bits
    run = _Run(pickle.dumps(worker), worker.batch_tokens, deque(numbers), around, retries, listener)
    with ended(run.children):
        while run.waiting or run.busy():
            run.hire(workers)
            run.hand_out()
            run.listen()
    return Outcome(run.done, run.failed)


def environment(workers: int, threads: int | None = None) -> dict[str, str]:
    """The environment of a worker: the caller's own, its search path, and the numbers of threads.

    Args:
        workers: the number of processes.
        threads: of each process; None = its share of the cores. More than there are cores give a warning: threads
            that wait for each other wait for cores too, and that is several times slower.
    """
    there = cores()
    own = threads or max(1, there // workers)
    if workers * own > there:
        wanted = f"{plural(workers, 'worker')} of {plural(own, 'thread')}"
        warn(f"{wanted} on {plural(there, 'core')} wait for each other: give fewer")
    path = os.pathsep.join(os.path.abspath(place) for place in sys.path)
    return {**os.environ, **dict.fromkeys(THREADS, str(own)), "PYTHONPATH": path}


@dataclass(eq=False)
class Child:
    """A worker's process.

    Attributes:
        process: of the worker.
        pipe: to it.
        said: what it has printed.
        ready: its model is loaded.
        number: of the shard that it does; None if it does none.
    """

    process: subprocess.Popen[bytes]
    pipe: Connection
    said: IO[bytes]
    ready: bool = False
    number: int | None = None

    def end(self, patience: float = 0) -> str:
        """End the process, if it has not ended after some seconds.

        Returns:
            How it ended, and the last line that it has printed.
        """
        self.pipe.close()
        with self.said:
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(patience)
            self.process.kill()
            code = self.process.wait()
            self.said.seek(max(0, self.said.seek(0, os.SEEK_END) - LAST_WORDS))
            lines = self.said.read().decode(errors="replace").split("\n")
        return account(code, one_line(next((line for line in reversed(lines) if line.strip()), "")))


def spawn(written: bytes, environment: dict[str, str]) -> Child:
    """Start a worker's process, in a session of its own: Ctrl-C on the terminal reaches the caller alone.

    Args:
        written: the pickled worker.
        environment: of the process.
    """
    ours, theirs = Pipe()
    with theirs:
        said = TemporaryFile()  # noqa: SIM115
        command = [sys.executable, "-P", "-m", f"{__package__}.workers_child", str(theirs.fileno())]
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=environment, pass_fds=[theirs.fileno()],
            start_new_session=True,
        )  # fmt: skip
    with suppress(OSError):  # it has died already
        ours.send_bytes(written)
    return Child(process, ours, said)


@contextmanager
def ended(children: list[Child]) -> Iterator[None]:
    """End every process with the block, whatever ends it: what they do can be done again."""
    try:
        yield
    finally:
        for child in children:
            child.end()


@dataclass
class _Run:
    """Shards that wait, and the processes that do them.

    Attributes:
        written: the pickled worker.
        batch_tokens: the worker's own.
        waiting: the shards that wait.
        environment: of a process.
        retries: how often a shard is done again.
        listener: is told of each shard.
        children: the processes.
        deaths: of workers, by the shard that they did.
        starts: workers in succession that died before they were ready.
        done, failed: see `Outcome`.
    """

    written: bytes
    batch_tokens: int | None
    waiting: deque[int]
    environment: dict[str, str]
    retries: int
    listener: ShardListener
    children: list[Child] = field(default_factory=list)
    deaths: Counter[int] = field(default_factory=Counter)
    starts: int = 0
    done: int = 0
    failed: dict[int, str] = field(default_factory=dict)

    def busy(self) -> int:
        """The number of processes that do a shard."""
        return sum(child.number is not None for child in self.children)

    def hire(self, workers: int) -> None:
        """Start processes up to a number, but no more than there are shards for."""
        while len(self.children) < min(workers, self.busy() + len(self.waiting)):
            self.children.append(spawn(self.written, self.environment))

    def hand_out(self) -> None:
        """Give each process that has nothing to do a shard."""
        for child in self.children:
            if self.waiting and child.ready and child.number is None:
                with suppress(OSError):  # it has died: `listen` will see it
                    number = self.waiting[0]
                    child.pipe.send((number, fewer_tokens(self.batch_tokens, self.deaths[number])))
                    child.number = self.waiting.popleft()

    def listen(self) -> None:
        """Wait until a process has something to say, or is gone."""
        speaking = wait([child.pipe for child in self.children])
        for child in [child for child in self.children if child.pipe in speaking]:
            try:
                kind, content = child.pipe.recv()
            except (EOFError, OSError):
                self.replace(child, "")
            else:
                self.hear(child, kind, content)

    def hear(self, child: Child, kind: str, content: Any) -> None:
        """Act on a word of a process.

        Args:
            child: the process.
            kind: "ready", "done" with a marker, "refused" with the error that ends the run, or "died" with its reason.
            content: as the kind has it.
        """
        if kind == "ready":
            child.ready, self.starts = True, 0
        elif kind == "done":
            assert child.number is not None
            number, child.number = child.number, None
            self.done += 1
            self.listener.done(number, content)
        elif kind == "refused":
            raise content
        else:
            self.replace(child, content)

    def replace(self, child: Child, why: str) -> None:
        """Part with a process that died; its shard waits again, or is given up.

        Args:
            child: the process.
            why: its own account; empty if it left none.

        Raises:
            ModelError: it was the third in succession that died before it was ready.
        """
        self.children.remove(child)
        how = child.end(PATIENCE)
        why = why or how
        if not child.ready:
            self.starts += 1
            if self.starts >= STARTS:
                raise ModelError(f"{STARTS} workers ended before their first shard; the last one {why}")
        elif child.number is not None:
            self.deaths[child.number] += 1
            if self.deaths[child.number] > self.retries:
                self.failed[child.number] = why
                self.listener.failed(child.number, why)
            else:
                self.waiting.append(child.number)
                self.listener.retried(child.number, why)


def fewer_tokens(own: int | None, deaths: int) -> int | None:
    """The number of tokens in a batch of a shard: half as many after each death of a worker at it.

    Args:
        own: the worker's number; None = the least of the devices' defaults, once a worker has died.
        deaths: how many workers have died.

    Returns:
        The number; None = the worker's own.

    >>> fewer_tokens(100, 0), fewer_tokens(100, 1), fewer_tokens(None, 2)
    (None, 50, 512)
    """
    return max(SMALLEST, (own or min(TOKENS.values())) >> deaths) if deaths else None


def account(code: int, last_words: str) -> str:
    """Why a process ended.

    Args:
        code: its exit code, negative for a signal.
        last_words: the last line that it printed.

    >>> account(-9, ""), account(3, "out of luck")
    ('was killed by SIGKILL, perhaps because memory ran out', 'ended with code 3: out of luck')
    """
    if code < 0:
        how = f"was killed by {signal.Signals(-code).name}"
        how += ", perhaps because memory ran out" if -code == signal.SIGKILL else ""
    else:
        how = f"ended with code {code}"
    return f"{how}: {last_words}" if last_words else how
