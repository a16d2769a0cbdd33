"""A lock on a folder, which one process holds at a time; the system releases it when the process ends in any way.

The lock file says that Afterword created the folder. It holds its own inode number, so a copy or a download of the
folder is not mistaken for the original. Without such a lock file, nothing in a folder of that name is ever changed.
A second line names the process that held the lock last.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from socket import gethostname

from ..errors import ModelError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

LOCK = "lock"
MARK = "Afterword made this folder, with inode "
HOLDER = b"\nHeld by process "


@contextmanager
def lock_folder(folder: Path, what: str, target: Path | None = None) -> Iterator[None]:
    """Create and lock a folder, and remove it at the end if only the lock file is left in it.

    Args:
        folder: the folder; it may exist, left by a process that was killed.
        what: what another process that holds the lock is doing, for the error message.
        target: to what it is doing that; None = the folder that the locked one is in.

    Raises:
        ModelError: another process holds the lock (it is named), Afterword did not create the folder, or the system
            is Windows.
    """
    what = f"{what} {target or folder.parent}"
    if fcntl is None:
        raise ModelError(f"{what} needs file locks, which Windows does not have: use Linux, macOS or WSL")
    handle = _hold(folder, what)
    try:
        yield
    finally:
        try:
            with suppress(OSError):
                if os.listdir(folder) == [LOCK]:  # as long as other files are left, the lock file says whose they are
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
    with suppress(FileNotFoundError):  # another process has just finished and removed the folder
        handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
        mine = False
        try:
            mine = lock_file(handle, new or _is_gone(folder / LOCK)) and os.path.samestat(
                os.fstat(handle), (folder / LOCK).lstat()
            )
            if mine and not _marked(handle, folder):
                mine = False
                raise foreign
        finally:
            if not mine:
                os.close(handle)
        if mine:
            return handle
    pid, host = _holder(folder / LOCK)
    who = f" ({pid}{'' if host == gethostname() else f' on {host}'})" if pid else ""
    raise ModelError(f"another process{who} is {what}: wait for it; if there is none, remove {folder}")


def is_copy(folder: Path) -> bool:
    """Whether a folder came here with the lock file of another one."""
    lock = folder / LOCK
    try:
        return lock.read_bytes().startswith(MARK.encode()) and str(lock.stat().st_ino) != _inode(lock)
    except OSError:
        return False


def _inode(lock: Path) -> str:
    return lock.read_bytes().removeprefix(MARK.encode()).partition(HOLDER)[0].decode(errors="replace")


def _holder(lock: Path) -> tuple[int, str]:
    """The process that a lock file names, and its computer; (0, "") if it names none."""
    try:
        pid, _, host = lock.read_bytes().partition(HOLDER)[2].partition(b"\n")[0].decode().partition(" on ")
        return int(pid), host
    except (OSError, ValueError):
        return 0, ""


def _is_gone(lock: Path) -> bool:
    """Whether the process that a lock file names has ended; False if that cannot be known."""
    pid, host = _holder(lock)
    if not pid or host != gethostname():
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


def _is_file(path: Path) -> bool:
    """Whether the path is a file, not a link to one."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except FileNotFoundError:
        return False


def _marked(handle: int, folder: Path) -> bool:
    """Whether an open lock file says that Afterword created its folder; a new lock file gets that mark.

    A process that was killed may have left an empty lock file, but then no other file in the folder.
    """
    mark = f"{MARK}{os.fstat(handle).st_ino}".encode()
    line = HOLDER + f"{os.getpid()} on {gethostname()}\n".encode()
    content = os.read(handle, len(mark + HOLDER))
    if content in {mark, mark + HOLDER}:
        os.pwrite(handle, line, len(mark))  # not shortened first: a process that is killed here leaves the mark
        os.ftruncate(handle, len(mark + line))
        return True
    if os.listdir(folder) != [LOCK] or not (mark.startswith(content) or content.startswith(MARK.encode())):
        return False
    os.lseek(handle, 0, os.SEEK_SET)
    os.ftruncate(handle, 0)
    os.write(handle, mark + line)
    return True


def lock_file(handle: int, otherwise: bool) -> bool:
    """Whether this process got the lock of an open file; ``otherwise`` if there are no locks here."""
    if fcntl is None:
        return otherwise
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return otherwise
    return True
