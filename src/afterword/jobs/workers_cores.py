"""The cores that this process may use, and how many workers they are for."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

THREADS = 2  # of a worker


def cores(root: Path = Path("/")) -> int:
    """The number of cores that this process may use: those of its mask, within its containers' share of time.

    Args:
        root: the folder of `proc` and `sys`.
    """
    own = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([own, *(math.ceil(quota) for quota in _quotas(root))]))


def share(cores: int) -> int:
    """The number of workers for so many cores, of two threads each.

    >>> share(1), share(2), share(16)
    (1, 1, 8)
    """
    return max(1, cores // THREADS)


def _quotas(root: Path) -> Iterator[float]:
    """The cores of each control group around the process that has a limit: time that it gets, over time that passes."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, kinds, path = [*line.split(":", 2), "", ""][:3]
        if kinds == "":
            top, names = root / "sys/fs/cgroup", ["cpu.max"]
        elif "cpu" in kinds.split(","):
            top, names = root / "sys/fs/cgroup/cpu", ["cpu.cfs_quota_us", "cpu.cfs_period_us"]
        else:
            continue
        inner = Path(path.strip().lstrip("/"))
        for group in dict.fromkeys([*(top / place for place in (inner, *inner.parents)), top]):
            try:
                quota, period = " ".join((group / name).read_text() for name in names).split()
            except (OSError, ValueError):
                continue
            if quota.isdecimal() and int(period):  # without a limit it is "max", or -1
                yield int(quota) / int(period)
