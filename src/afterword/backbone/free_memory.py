"""The free memory, of the machine and of the container that the process runs in."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

UNLIMITED = 1 << 60  # cgroup version 1 writes a number near 2 ** 63 if there is no limit


def free_memory(root: Path = Path("/")) -> int:
    """The bytes that can be allocated without swapping and without exceeding a container's limit.

    Args:
        root: the folder of `proc` and `sys`.
    """
    free = _machine(root)
    return min([free, *_containers(root)])


def _machine(root: Path) -> int:
    try:
        rows = dict(line.split(":", 1) for line in (root / "proc/meminfo").read_text().splitlines())
        return int(rows["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError, IndexError):
        return int(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")) if hasattr(os, "sysconf") else 0


def _containers(root: Path) -> Iterator[int]:
    """The free bytes of each control group around the process, the innermost first; each limits those inside it."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, kinds, path = [*line.split(":", 2), "", ""][:3]
        if kinds == "":
            names = ("memory.max", "memory.current", "inactive_file")
            top = root / "sys/fs/cgroup"
        elif "memory" in kinds.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            top = root / "sys/fs/cgroup/memory"
        else:
            continue
        inner = Path(path.strip().lstrip("/"))
        for group in dict.fromkeys([*(top / p for p in (inner, *inner.parents)), top]):
            left = _left(group, *names)
            if left is not None:
                yield left


def _left(group: Path, limit: str, usage: str, cached: str) -> int | None:
    """A group's limit less its usage; None without a limit. Cached files can be freed, and do not count as usage.

    In a container the group's own folder is often mounted at the top, so folders that do not exist are ignored.
    """
    try:
        most = (group / limit).read_text().strip()
        used = int((group / usage).read_text())
    except (OSError, ValueError):
        return None
    if not most.isdecimal() or int(most) >= UNLIMITED:
        return None
    try:
        rows = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        used -= int(rows[cached])
    except (OSError, ValueError, KeyError):
        pass
    return max(0, int(most) - max(0, used))
