"""Atomic files and folders: written under another name, and moved into place once they are complete.

A new folder appears by a single rename. Into an existing folder the files are moved one by one, so that the folder
itself stays: it may be a working directory, a mount or the target of a link. config.json is moved out first and moved
in last, because without it a mixture of two models cannot be loaded. A journal lists what is being moved. If the
process ends in between, loading is refused while the journal is there, and the next save first puts the old files
back. Files that Afterword did not write are never changed.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from ..errors import AfterwordError, DataError, ModelError
from .folder_lock import LOCK, lock_file, lock_folder
from .manifest import (
    MANIFEST,
    check_names,
    files_of,
    folders_of,
    lexists,
    read_manifest,
    refuse_foreign,
    refuse_odd_folders,
    saved_files,
    write_manifest,
)

STAGE = ".afterword-saving"
"""The hidden folder, in the target folder or beside it, that new files are written to."""
NEW, OLD, JOURNAL = "new", "old", "moving.json"
GATE = ("modules.json", "config.json")
"""The files without which loading is refused: they are moved out first and moved in last, in this order."""
WRITING = ".writing"
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """Write a file under another name beside it, and rename it once it is complete and on disk.

    Args:
        path: the file; a file of that name stays until the new one is complete.

    Yields:
        The open file. After any error it is removed.

    Raises:
        DataError: it cannot be written, another process is writing it, or the disk is full.
    """
    through = temporary(path)
    try:
        with moved_when_written(through, path) as file:
            yield file
    except OSError as e:
        if e.errno in FULL:
            why = f"{path} cannot be written whole: {os.strerror(e.errno)}; nothing of it was kept"
        elif e.filename == os.fspath(through):
            why = f"{path} cannot be written: {e.strerror or e}"
        else:
            raise
        raise DataError(why) from e


def temporary(path: Path) -> Path:
    """The name beside a file under which it is written: hidden, and the same for each run, which then reuses it."""
    return path.with_name(f".afterword-{hashlib.blake2b(os.fsencode(path.name), digest_size=8).hexdigest()}{WRITING}")


def remove_left(path: Path) -> None:
    """Remove what a process that was killed while it wrote a file has left; what a living one writes stays."""
    through = temporary(path)
    if through.exists():
        with suppress(DataError), _alone(through, path):
            through.unlink()


@contextmanager
def moved_when_written(through: Path, path: Path) -> Iterator[BinaryIO]:
    """Write a file under the name ``through``; rename it to ``path`` once it is on disk, and wait for that too.

    Yields:
        The open file. After any error it is removed.

    Raises:
        DataError: another process is writing it.
    """
    with _alone(through, path) as file:
        try:
            yield file
            file.flush()
            os.fsync(file.fileno())
            through.replace(path)
        except BaseException:
            through.unlink(missing_ok=True)
            raise
    sync(path.parent)


@contextmanager
def _alone(through: Path, path: Path) -> Iterator[BinaryIO]:
    """An empty file that this process alone writes; a file that a killed process left is taken."""
    while True:
        with os.fdopen(os.open(through, os.O_RDWR | os.O_CREAT, 0o666), "r+b") as file:
            if not lock_file(file.fileno(), otherwise=True):
                raise DataError(f"another process is writing {path}: wait for it")
            if through.exists() and os.path.samestat(os.fstat(file.fileno()), through.stat()):
                file.truncate()
                yield file
                return


@contextmanager
def atomic_folder(folder: Path) -> Iterator[Path]:
    """Replace a saved model by a new one, or leave the old one as it was if anything fails.

    Args:
        folder: the target; its parents are created. Files there that were not saved by Afterword stay.

    Yields:
        A new folder to write to, whose files are moved into the target at the end.

    Raises:
        ModelError: it cannot be written, another program's file is in the way, or another process is saving.
    """
    folder = _real(folder)
    try:
        with _staged(folder) as stage:
            check_place(folder)
            (stage / NEW).mkdir()
            yield stage / NEW
            _open(stage / NEW)
            write_manifest(stage / NEW, _of_others(stage / NEW, folder))
            if stage.parent == folder:
                _replace(stage, folder)
            else:
                (stage / NEW).rename(folder)
    except AfterwordError:
        raise
    except Exception as e:  # for a full disk, safetensors and tokenizers raise errors of their own, not OSError
        reason = (e.strerror if isinstance(e, OSError) else None) or str(e) or type(e).__name__
        kept = "what was there before is kept"
        if (folder / STAGE / JOURNAL).exists():
            kept += f" in {folder / STAGE}, from where the next save puts it back"
        raise ModelError(f"{folder} cannot be written: {reason.splitlines()[0]}; {kept}") from e


def check_place(folder: Path) -> None:
    """Refuse, at the start of a run, a folder that a model cannot be saved into.

    Raises:
        ModelError: it is a file, or holds another program's file that would be read as a part of the model.
    """
    folder = _real(folder)
    _check_folder(folder)
    if not (folder / STAGE / JOURNAL).exists():  # else the save checks, once it has put the old files back
        refuse_foreign(folder, (), (), saved_files(folder))


def check_target(path: Path) -> None:
    """Check, before a long computation, that a file can be written under this name.

    Raises:
        DataError: it is a folder, or would lie in none.
    """
    if path.is_dir():
        raise DataError(f"{path} is a folder: give the name of a file in it")
    if not path.parent.is_dir():
        raise DataError(f"{path} cannot be written: there is no folder {path.parent}; create it first")


def _real(folder: Path) -> Path:
    try:
        return Path(os.path.realpath(folder))
    except ValueError:
        raise ModelError(f"{str(folder)!r} cannot name a folder: it holds a character that no name may hold") from None


def _of_others(new: Path, folder: Path) -> list[str]:
    """The folders of a model that exist in the target already, and that no save created."""
    ours = (read_manifest(folder) or {}).get("folders", ())
    return [name for name in folders_of(new) if name not in ours and lexists(folder / name)]


def _check_folder(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise ModelError(f"{folder} is a file: give a folder")


@contextmanager
def refuse_while_written(folder: Path) -> Iterator[None]:
    """Refuse to read a folder while a model is being saved into it.

    Raises:
        ModelError: a save is going on, was interrupted, or took place while the folder was read, so that the files
            read may belong to two models.
    """
    before = _state(folder)
    yield
    if _state(folder) != before:
        raise ModelError(f"{folder} was saved anew while it was read: load it again")


def _state(folder: Path) -> tuple[int, int] | None:
    if (folder / STAGE / JOURNAL).exists():
        raise ModelError(
            f"{folder} is being saved, or a save there was interrupted: wait, or save into it again; "
            f"what was there before is in {folder / STAGE / OLD}"
        )
    try:
        state = (folder / MANIFEST).stat()
    except OSError:
        return None
    return state.st_ino, state.st_ctime_ns


@contextmanager
def _staged(folder: Path) -> Iterator[Path]:
    """A hidden folder for this save alone. If an earlier save was killed, its files are first put back or removed.

    Raises:
        ModelError: another process is saving into the same folder.
    """
    _check_folder(folder)
    inside, beside = folder / STAGE, folder.parent / f".{folder.name}{STAGE}"
    stage = inside if folder.is_dir() else beside
    for left in (inside, beside):
        if left != stage and lexists(left):
            with lock_folder(left, "saving into"):
                _clean(left)
    with lock_folder(stage, "saving into"):
        if (stage / JOURNAL).exists():
            _undo(stage, folder)
        _clean(stage)
        try:
            yield stage
        finally:
            if not (stage / JOURNAL).exists():  # else it holds the old files
                with suppress(OSError):
                    _clean(stage)


def _clean(stage: Path) -> None:
    for part in (NEW, OLD):
        if (stage / part).exists():
            shutil.rmtree(stage / part)


def _open(folder: Path) -> None:
    """Give every file the permissions of a new file: safetensors lets only the owner read what it writes."""
    probe = folder / ".mode"
    probe.touch()
    mode = probe.stat().st_mode & 0o777
    probe.unlink()
    for name in files_of(folder):
        (folder / name).chmod(mode)


def _replace(stage: Path, folder: Path) -> None:
    """Move the files of an earlier save out of a folder, and the new files in."""
    new, old, inner = files_of(stage / NEW), saved_files(folder), folders_of(stage / NEW)
    emptied = set((read_manifest(folder) or {}).get("folders", ())) - set(inner)
    refuse_foreign(folder, new, inner, old)
    made = [name for name in inner if not (folder / name).exists()]
    try:
        _write_journal(stage, new, old, made)
        for name in reversed(_gate_last(old)):
            _move(folder / name, stage / OLD / name)
        for name in made:
            (folder / name).mkdir()
        for name in _gate_last(new):
            _move(stage / NEW / name, folder / name)
        sync(folder)
        (stage / JOURNAL).unlink()
    except BaseException:
        if (stage / JOURNAL).exists():
            _undo(stage, folder)
        raise
    for name in sorted(emptied, reverse=True):
        with suppress(OSError):  # the folder holds other files
            (folder / name).rmdir()


def _write_journal(stage: Path, new: Sequence[str], old: Sequence[str], made: Sequence[str]) -> None:
    """Write the list of files to move, once all of them are on disk."""
    for name in new:
        sync(stage / NEW / name)
    sync(stage / LOCK)  # without the lock file the next save would not put anything back
    (stage / OLD).mkdir()
    moved = {"new": {name: _stamp(stage / NEW / name) for name in new}, "old": [*old], "folders": [*made]}
    half = stage / (JOURNAL + ".writing")
    half.write_text(json.dumps(moved), encoding="utf-8")
    sync(half)
    half.rename(stage / JOURNAL)
    sync(stage)


def _stamp(path: Path) -> list[int]:
    state = path.lstat()
    return [state.st_size, state.st_mtime_ns, state.st_ino]


def _read_journal(stage: Path, folder: Path) -> dict[str, Any]:
    """The list of files that an interrupted save was moving.

    Raises:
        ModelError: the list is broken, or names a path outside the folder or behind a link.
    """
    try:
        moved = json.loads((stage / JOURNAL).read_text("utf-8"))
        names = {"new": [*moved["new"]], "old": moved["old"], "folders": moved["folders"]}
        if not isinstance(moved["new"], dict) or not all(isinstance(part, list) for part in names.values()):
            raise ValueError
        for part in names.values():
            check_names(part)
            if any(PurePosixPath(name).parts[0] == STAGE for name in part):
                raise ValueError
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ModelError(
            f"{stage / JOURNAL} is broken, and no list of what a save was moving: move what you need out of {stage}, "
            "and remove it"
        ) from None
    for name in (*names["new"], *names["old"], *names["folders"]):
        refuse_odd_folders(folder, name)
    for part in (NEW, OLD):
        for name in names[part]:
            refuse_odd_folders(stage, f"{part}/{name}")
    return moved  # type: ignore[no-any-return]


def _undo(stage: Path, folder: Path) -> None:
    """Put every file back where it was before an interrupted save, at whatever point that ended.

    Raises:
        ModelError: a file was changed or put in the way since; or the journal is broken.
    """
    moved = _read_journal(stage, folder)
    for name in reversed(_gate_last(moved["new"])):
        if not (stage / NEW / name).exists() and lexists(folder / name):
            if _stamp(folder / name) != moved["new"][name]:
                raise ModelError(f"{folder / name} was changed since a save there was interrupted: move it away first")
            _move(folder / name, stage / NEW / name)
    for name in reversed(moved["folders"]):
        with suppress(OSError):  # the folder was not created yet, or is no longer empty
            (folder / name).rmdir()
    for name in _gate_last(moved["old"]):
        if (stage / OLD / name).exists():
            _move(stage / OLD / name, folder / name)
    (stage / JOURNAL).unlink()


def _gate_last(names: Sequence[str]) -> list[str]:
    """Names in the order in which they are moved in: the files of `GATE` come last."""
    return sorted(names, key=lambda name: (GATE.index(name) if name in GATE else -1, name))


def _move(source: Path, target: Path) -> None:
    """Rename a file, but never over another one."""
    if lexists(target):
        raise ModelError(f"{target} is in the way: move it away, and save again")
    target.parent.mkdir(parents=True, exist_ok=True)
    source.rename(target)


def sync(path: Path) -> None:
    """Wait until a file, or the list of names in a folder, is on disk; does nothing on Windows."""
    if os.name == "posix":
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
