"""A worker's process: ``python -m afterword.jobs.workers_child FD`` does the shards that come over a pipe."""

from __future__ import annotations

import errno
import os
import pickle
import sys
from multiprocessing.connection import Connection
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any

from ..errors import AfterwordError, DataError, one_line

if TYPE_CHECKING:
    from .pool import Worker

REFUSED = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM}
"""Errors of a write that no other shard and no other process would be spared."""

Task = tuple[int, int | None]


def serve(pipe: Connection) -> None:
    """Do shards until the other end of the pipe is closed.

    Args:
        pipe: gives a pickled worker, then numbers of shards, each with the number of tokens in a batch. It is told
            "ready" when the model is loaded, "done" with the marker of each shard, and the error that ends this
            process: "refused" if it is to end the run, "died" if another process may do better.
    """
    tasks: SimpleQueue[Task] = SimpleQueue()
    try:
        written = pipe.recv_bytes()
        Thread(target=_read, args=(pipe, tasks), daemon=True).start()
        worker: Worker = pickle.loads(written)
        do = worker.start(int(os.environ["OMP_NUM_THREADS"]))
        pipe.send(("ready", None))
        while True:
            pipe.send(("done", do(*tasks.get())))
    except Exception as e:
        pipe.send(("refused", sent(e)) if ends_run(e) else ("died", f"raised {type(e).__name__}: {one_line(str(e))}"))


def _read(pipe: Connection, tasks: SimpleQueue[Task]) -> None:
    """Take tasks from the pipe, and end this process at once when the one that gives them is gone."""
    try:
        while True:
            tasks.put(pipe.recv())
    except (EOFError, OSError):
        os._exit(1)


def ends_run(error: Exception) -> bool:
    """Whether an error is about the input, the model or the disk, which are the same for every shard and process."""
    return isinstance(error, AfterwordError) or (isinstance(error, OSError) and error.errno in REFUSED)


def sent(error: Exception) -> Exception:
    """An error that can be pickled: itself where it can, otherwise a `DataError` with its text."""
    try:
        copy: Any = pickle.loads(pickle.dumps(error))
    except Exception:
        return DataError(str(error))
    return error if type(copy) is type(error) and str(copy) == str(error) else DataError(str(error))


def main(end: int) -> None:
    """Serve the pipe whose end is an open file of this process."""
    os.set_inheritable(end, False)  # a program that is started from here must not keep the pipe open
    serve(Connection(end))


if __name__ == "__main__":
    main(int(sys.argv[1]))
