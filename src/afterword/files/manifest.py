"""The list of what a save wrote into a folder, kept in that folder: only what it lists may ever be replaced."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import Any

from ..backbone.file_safety import READ
from ..errors import ModelError

MANIFEST = "afterword_manifest.json"
LARGE = 1 << 20
"""Bytes from which on a file is not read to find out whether it was changed, if its time and inode are the same."""
LONGEST = 255
"""Bytes that the name of a file has at most."""


def files_of(folder: Path) -> list[str]:
    """The files of a folder and of all folders in it, as posix paths in it; links are not followed."""
    return sorted(name for _, names in _walk(folder) for name in names)


def folders_of(folder: Path) -> list[str]:
    """The folders in a folder, the outer ones first, as posix paths in it."""
    return sorted(name for names, _ in _walk(folder) for name in names)


def _walk(folder: Path) -> Iterator[tuple[list[str], list[str]]]:
    """Folders and files, one folder after the other; what cannot be read is an error, not empty."""
    for root, *found in os.walk(folder, onerror=_raise):
        base = Path(root).relative_to(folder)
        folders, files = ([(base / name).as_posix() for name in names] for names in found)
        yield folders, files


def _raise(error: OSError) -> None:
    raise error


def there(path: Path) -> bool:
    """Whether anything is there, a link that leads nowhere too; a disk that does not answer is an error."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def write_manifest(folder: Path, others: Iterable[str] = ()) -> None:
    """List everything that lies in a folder: size in bytes, time of the last change in nanoseconds, inode, SHA-256.

    Args:
        folder: what was saved.
        others: folders that somebody else has made in the place where it will be; they are not listed.
    """
    listed: dict[str, dict[str, Any]] = {}
    for name in files_of(folder):
        if name != MANIFEST:
            state = (folder / name).stat()
            listed[name] = {"bytes": state.st_size, "modified": state.st_mtime_ns, "inode": state.st_ino}
            listed[name]["sha256"] = _hash(folder / name)
    whole = {"folders": sorted({*folders_of(folder)} - {*others}), "files": listed}
    text = json.dumps(whole, indent=1, ensure_ascii=False)
    (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """What a save has listed: ``files`` by name, and ``folders``; None where no save has.

    Raises:
        ModelError: the list is broken, or names what lies outside the folder.
    """
    path = folder / MANIFEST
    if not there(path):
        return None
    try:
        listed = json.loads(path.read_text("utf-8"))
        kinds = {"bytes": int, "modified": int, "sha256": str}
        known = all(isinstance(entry[key], kind) for entry in listed["files"].values() for key, kind in kinds.items())
        if not known or not isinstance(listed["folders"], list):
            raise ValueError
        check_names((*listed["files"], *listed["folders"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ModelError(f"{path} is broken, and no list of saved files: save into another folder") from None
    return listed  # type: ignore[no-any-return]


def saved_files(folder: Path) -> list[str]:
    """The files that an earlier save wrote and nobody has changed since; those that are gone are left out.

    Raises:
        ModelError: one of them was changed, or is something else now.
    """
    listed = read_manifest(folder)
    if listed is None:
        return []
    found = [name for name in listed["files"] if there(folder / name)]
    for name in found:
        refuse_odd_folders(folder, name)
        path, entry = folder / name, listed["files"][name]
        if path.is_symlink() or not path.is_file() or _changed(path, entry):
            raise ModelError(
                f"{path} was changed after it was saved: save into another folder, or move that file away first"
            )
    return [*found, MANIFEST]


def refuse_foreign(folder: Path, names: Iterable[str], folders: Iterable[str], saved: Iterable[str]) -> None:
    """Refuse to write where a file of somebody else's would be replaced, or read as a part of the model.

    Args:
        folder: may not be there yet.
        names: files that are to be written, as posix paths in the folder.
        folders: folders that are to be there.
        saved: files there that an earlier save wrote.

    Raises:
        ModelError: the first such file is named.
    """
    ours, inner = set(saved), sorted(folders)
    for name in (*inner, *sorted(names)):
        refuse_odd_folders(folder, name)
        path = folder / name
        if name not in ours and there(path) and (name not in inner or path.is_symlink() or path.is_file()):
            raise _foreign(folder, name)
    for parent in ("", *inner):
        for name in _names(folder / parent):
            whole = f"{parent}/{name}" if parent else name
            if whole not in ours and any(fnmatch(name, pattern) for pattern in READ):
                raise _foreign(folder, whole)


def _names(folder: Path) -> Iterator[str]:
    """What lies in a folder, but for folders."""
    if folder.is_dir():
        yield from sorted(entry.name for entry in os.scandir(folder) if not entry.is_dir(follow_symlinks=False))


def _foreign(folder: Path, name: str) -> ModelError:
    return ModelError(
        f"{folder} holds {name}, which is not listed in {MANIFEST} as saved by Afterword: "
        "save into another folder, or move that file away first"
    )


def refuse_odd_folders(folder: Path, name: str) -> None:
    """A folder on the way to a file must be a folder: through a link, files would be written somewhere else.

    Raises:
        ModelError: it is a link or a file.
    """
    for parent in reversed(PurePosixPath(name).parents[:-1]):
        path = folder / parent
        if path.is_symlink() or (path.exists() and not path.is_dir()):
            raise _foreign(folder, parent.as_posix())


def check_names(names: Iterable[Any]) -> None:
    """Whether paths that were read from a file lead to something in the folder that they are meant for.

    Raises:
        ValueError: one does not, or no file can have such a name.
    """
    for name in names:
        parts = PurePosixPath(name).parts if isinstance(name, str) else ()
        odd = not parts or name.startswith("/") or ".." in parts or "\\" in name or "\0" in name
        if odd or len(name.encode()) > 1000 or any(len(part.encode()) > LONGEST for part in parts):
            raise ValueError  # as encode() does for a lone surrogate


def _changed(path: Path, entry: dict[str, Any]) -> bool:
    """Whether a file differs from what was listed; a large one is read only where its time or inode differs."""
    state = path.stat()
    if state.st_size != entry["bytes"]:
        return True
    same = (state.st_mtime_ns, state.st_ino) == (entry["modified"], entry.get("inode"))
    return not (same and state.st_size >= LARGE) and _hash(path) != entry["sha256"]


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
