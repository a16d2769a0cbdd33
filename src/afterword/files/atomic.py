"""A model's folder, written aside and moved to its place when it is whole; files of others are never touched.

Where no folder is, the new one appears by a single rename. Into a folder that is there, the files are moved one by
one, so that the folder itself stays what it is: a working directory, a mount, the target of a link. config.json goes
first and comes last: without it nobody can load a mixture of two models. A journal says what is being moved; if the
process dies in between, loading is refused by that journal, and the next save puts everything back before it begins.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any

from ..errors import AfterwordError, ModelError
from .folder_lock import LOCK, held
from .manifest import (
    MANIFEST,
    check_names,
    files_of,
    folders_of,
    read_manifest,
    refuse_foreign,
    refuse_odd_folders,
    saved_files,
    there,
    write_manifest,
)

STAGE = ".afterword-saving"
"""The hidden folder, in the place or beside it, that holds what is being saved."""
NEW, OLD, JOURNAL = "new", "old", "moving.json"
GATE = ("modules.json", "config.json")
"""What loading needs: it goes first and comes last, in this order."""


@contextmanager
def placed(folder: Path) -> Iterator[Path]:
    """A new folder to write to, whose files take their place in the end; if anything fails, the old ones stay.

    Args:
        folder: the place; folders above it are made. Files there that no save has written stay as they are.

    Raises:
        ModelError: it cannot be written, in one line; somebody else's file is in the way; another process is saving.
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
    except Exception as e:  # a full disk is told by OSError here, by errors of their own in safetensors and tokenizers
        reason = (e.strerror if isinstance(e, OSError) else None) or str(e) or type(e).__name__
        kept = "what was there before is kept"
        if (folder / STAGE / JOURNAL).exists():
            kept += f" in {folder / STAGE}, from where the next save puts it back"
        raise ModelError(f"{folder} cannot be written: {reason.splitlines()[0]}; {kept}") from e


def check_place(folder: Path) -> None:
    """Refuse, before anything else is done, a folder that a model cannot be saved into.

    Raises:
        ModelError: it is a file, or holds somebody else's file that would be read as a part of the model.
    """
    folder = _real(folder)
    _check_folder(folder)
    if not (folder / STAGE / JOURNAL).exists():  # else the save itself looks, once it has put everything back
        refuse_foreign(folder, (), (), saved_files(folder))


def _real(folder: Path) -> Path:
    try:
        return Path(os.path.realpath(folder))
    except ValueError:
        raise ModelError(f"{str(folder)!r} is no name of a folder: it holds a character that none may hold") from None


def _of_others(new: Path, folder: Path) -> list[str]:
    """The folders of a model that are in its place already, and that no save has made."""
    ours = (read_manifest(folder) or {}).get("folders", ())
    return [name for name in folders_of(new) if name not in ours and there(folder / name)]


def _check_folder(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise ModelError(f"{folder} is a file: give a folder")


@contextmanager
def settled(folder: Path) -> Iterator[None]:
    """Refuse to read a folder whose files are being moved, or were while it was read.

    Raises:
        ModelError: a save is going on or was interrupted; what was read may be of two models.
    """
    before = _state(folder)
    yield
    if _state(folder) != before:
        raise ModelError(f"{folder} was saved anew while it was read: load it again")


def _state(folder: Path) -> tuple[int, int] | None:
    if (folder / STAGE / JOURNAL).exists():
        raise ModelError(
            f"{folder} is being saved, or a save there was interrupted: wait, or save into it again; "
            f"what was there before lies in {folder / STAGE / OLD}"
        )
    try:
        state = (folder / MANIFEST).stat()
    except OSError:
        return None
    return state.st_ino, state.st_ctime_ns


@contextmanager
def _staged(folder: Path) -> Iterator[Path]:
    """A hidden folder for this save alone; what a process that was killed has left is put back and cleaned away.

    Raises:
        ModelError: another process saves into this place.
    """
    _check_folder(folder)
    inside, beside = folder / STAGE, folder.parent / f".{folder.name}{STAGE}"
    stage = inside if folder.is_dir() else beside
    for left in (inside, beside):
        if left != stage and there(left):
            with held(left, "saving into"):
                _clean(left)
    with held(stage, "saving into"):
        if (stage / JOURNAL).exists():
            _undo(stage, folder)
        _clean(stage)
        try:
            yield stage
        finally:
            if not (stage / JOURNAL).exists():  # else it holds files of the place
                with suppress(OSError):
                    _clean(stage)


def _clean(stage: Path) -> None:
    for part in (NEW, OLD):
        if (stage / part).exists():
            shutil.rmtree(stage / part)


def _open(folder: Path) -> None:
    """Give every file the mode of a new one: safetensors keeps what it writes to its owner."""
    probe = folder / ".mode"
    probe.touch()
    mode = probe.stat().st_mode & 0o777
    probe.unlink()
    for name in files_of(folder):
        (folder / name).chmod(mode)


def _replace(stage: Path, folder: Path) -> None:
    """Move what an earlier save wrote out of a folder, and the new files in."""
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
        with suppress(OSError):  # it holds something of somebody else's
            (folder / name).rmdir()


def _write_journal(stage: Path, new: Sequence[str], old: Sequence[str], made: Sequence[str]) -> None:
    """Say what will be moved, once the disk has all of it."""
    for name in new:
        sync(stage / NEW / name)
    sync(stage / LOCK)  # without it the next save would not put anything back
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
    """What was being moved.

    Raises:
        ModelError: it is broken, or names what lies outside the folder or behind a link.
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
    """Put everything back where it was before files were moved, however far that came.

    Raises:
        ModelError: somebody has put a file in the way since; the journal is not one of ours.
    """
    moved = _read_journal(stage, folder)
    for name in reversed(_gate_last(moved["new"])):
        if not (stage / NEW / name).exists() and there(folder / name):
            if _stamp(folder / name) != moved["new"][name]:
                raise ModelError(f"{folder / name} was changed since a save there was interrupted: move it away first")
            _move(folder / name, stage / NEW / name)
    for name in reversed(moved["folders"]):
        with suppress(OSError):  # not made yet, or no longer empty
            (folder / name).rmdir()
    for name in _gate_last(moved["old"]):
        if (stage / OLD / name).exists():
            _move(stage / OLD / name, folder / name)
    (stage / JOURNAL).unlink()


def _gate_last(names: Sequence[str]) -> list[str]:
    """Names in the order in which they are moved in: what loading needs comes last."""
    return sorted(names, key=lambda name: (GATE.index(name) if name in GATE else -1, name))


def _move(source: Path, target: Path) -> None:
    """Rename a file to a place where nothing is."""
    if there(target):
        raise ModelError(f"{target} is in the way: move it away, and save again")
    target.parent.mkdir(parents=True, exist_ok=True)
    source.rename(target)


def sync(path: Path) -> None:
    """Wait until the disk has a file, or the names in a folder; where the system can say so."""
    if os.name == "posix":
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
