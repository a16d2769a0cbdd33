"""A folder that one process holds at a time; the lock goes with its process, however that ends.

The lock file says that Afterword made the folder, and where: it holds its own inode, which no copy and no download
has. Without that, nothing in a folder of that name is ever touched.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..errors import ModelError

try:
    import fcntl
except ImportError:  # a system without it
    fcntl = None  # type: ignore[assignment]

LOCK = "lock"
MARK = "Afterword made this folder, with inode "


@contextmanager
def held(folder: Path, what: str) -> Iterator[None]:
    """Hold a folder, made if it is not there, and remove it in the end if nothing but the lock is left in it.

    Args:
        folder: may be one that a killed process has left.
        what: another process would be doing, for the message.

    Raises:
        ModelError: another process holds it, or it was not made for that.
    """
    handle = _hold(folder, what)
    try:
        yield
    finally:
        try:
            with suppress(OSError):
                if os.listdir(folder) == [LOCK]:  # as long as anything is left, the lock says whose it is
                    (folder / LOCK).unlink()
                    folder.rmdir()
        finally:
            os.close(handle)


def _hold(folder: Path, what: str) -> int:
    foreign = ModelError(f"{folder} was not made by Afterword: move it away")
    if folder.is_symlink() or (folder.is_dir() and not _is_file(folder / LOCK) and any(folder.iterdir())):
        raise foreign
    try:
        folder.mkdir(parents=True)
        new = True
    except FileExistsError:
        new = False
    with suppress(FileNotFoundError):  # the other has just finished
        handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
        mine = False
        try:
            mine = _locked(handle, new) and os.path.samestat(os.fstat(handle), (folder / LOCK).lstat())
            if mine and not _marked(handle, folder):
                mine = False
                raise foreign
        finally:
            if not mine:
                os.close(handle)
        if mine:
            return handle
    raise ModelError(f"another process is {what} {folder.parent}: wait for it; if there is none, remove {folder}")


def _is_file(path: Path) -> bool:
    """Whether it is a file itself, not a link to one."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except FileNotFoundError:
        return False


def _marked(handle: int, folder: Path) -> bool:
    """Whether an open lock says that its folder was made here; one that is new is told so.

    A process that was killed may have left a lock without a word, but then nothing else beside it.
    """
    mark = f"{MARK}{os.fstat(handle).st_ino}".encode()
    said = os.read(handle, len(mark) + 1)
    if said == mark:
        return True
    if os.listdir(folder) != [LOCK] or not (mark.startswith(said) or said.startswith(MARK.encode())):
        return False
    os.lseek(handle, 0, os.SEEK_SET)
    os.ftruncate(handle, 0)
    os.write(handle, mark)
    return True


def _locked(handle: int, otherwise: bool) -> bool:
    """Whether this process has the lock of an open file; where the system has no locks, what else is known."""
    if fcntl is None:
        return otherwise
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return otherwise
    return True
