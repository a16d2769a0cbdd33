"""The number of torch's threads, which belongs to the process, while a job embeds in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock

import torch

_ONE_JOB = RLock()


@contextmanager
def torch_threads(number: int | None) -> Iterator[None]:
    """Run torch with so many threads, and then with as many as before.

    Jobs of one process that embed in it wait for each other: another number of threads would give other last bits.

    Args:
        number: of the threads; None = as many as there are.
    """
    with _ONE_JOB:
        before = torch.get_num_threads()
        if number is not None:
            torch.set_num_threads(number)
        try:
            yield
        finally:
            torch.set_num_threads(before)
