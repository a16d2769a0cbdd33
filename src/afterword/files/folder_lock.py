"""A lock on a folder, which one process holds at a time; the system releases it when the process ends in any way."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from ..errors import ModelError

LOCK = "lock"


@contextmanager
def lock_folder(folder: Path, what: str, target: Path | None = None) -> Iterator[None]:
    """Create and lock a folder; at the end, remove it if only the lock file is left in it.

    Args:
        folder: the folder; an existing one is either empty or holds a lock file.
        what: what the process that holds the lock is doing, for the error message.
        target: what it is doing that to; None = the parent of the folder.

    Raises:
        ModelError: another process holds the lock, or the folder was not created by Afterword.
    """
    if folder.is_symlink() or (folder.is_dir() and any(folder.iterdir()) and not (folder / LOCK).is_file()):
        raise ModelError(f"{folder} was not made by Afterword: move it away")
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / LOCK, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise ModelError(f"another process is {what} {target or folder.parent}: wait for it") from None
    try:
        yield
    finally:
        with suppress(OSError):
            if os.listdir(folder) == [LOCK]:
                (folder / LOCK).unlink()
                folder.rmdir()
        lock.release()
