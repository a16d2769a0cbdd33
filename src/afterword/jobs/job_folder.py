"""The folder of a job: who may write it, and how it is emptied."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..errors import DataError, ModelError
from ..files.folder_lock import lock_folder
from .names import JOB
from .shard import DONE, MADE_BY, PLAN, REJECTS, SHARDS, TMP

COMPLETE = "complete.json"
NUMBER = 6 * "[0-9]"  # how the names of a shard's files begin


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a job's folder, which is made if it is not there.

    Raises:
        DataError: another process holds it; the folder was not made by Afterword; it cannot be written.
    """
    try:
        with lock_folder(folder, "writing", folder):
            yield
    except ModelError as e:
        raise DataError(str(e)) from None
    except PermissionError as e:
        raise DataError(f"{folder} cannot be written: {e.strerror}: chmod u+w {folder}") from None


def clear(folder: Path) -> None:
    """Remove all that a job has written, and nothing else; the files that say what it is go last."""
    for name in (DONE, SHARDS, REJECTS, TMP):
        for path in sorted((folder / name).glob("*" if name == TMP else f"{NUMBER}.*")):
            path.unlink()
        with suppress(OSError):
            (folder / name).rmdir()
    for name in (COMPLETE, PLAN, MADE_BY, JOB):
        (folder / name).unlink(missing_ok=True)


def is_untouched(folder: Path) -> bool:
    """Whether nothing was embedded there yet."""
    return not any((folder / name).is_dir() and any((folder / name).iterdir()) for name in (DONE, SHARDS, REJECTS))
