"""Keep the states of the random number generators while another library seeds them anew."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np


@contextmanager
def untouched_seeds() -> Iterator[None]:
    """A context that restores the random states of `random`, numpy and torch, which mteb seeds with every task."""
    import random

    import torch

    kept = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    try:
        yield
    finally:
        random.setstate(kept[0])
        np.random.set_state(kept[1])  # noqa: NPY002
        torch.set_rng_state(kept[2])
