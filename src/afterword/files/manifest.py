"""The manifest: a list, in a folder, of the files that a save wrote there. Only files on the list are ever replaced."""

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
"""A file of at least so many bytes counts as unchanged, without reading it, if its time and inode are the same."""
LONGEST = 255
"""The maximum length of a file's name, in bytes."""


def files_of(folder: Path) -> list[str]:
    """The files of a folder and of all folders in it, as relative posix paths; links are not followed."""
    return sorted(name for _, names in _walk(folder) for name in names)


def folders_of(folder: Path) -> list[str]:
    """The folders in a folder, the outer ones first, as relative posix paths."""
    return sorted(name for names, _ in _walk(folder) for name in names)


def _walk(folder: Path) -> Iterator[tuple[list[str], list[str]]]:
    """The folders and files in each folder; a folder that cannot be read raises an error."""
    for root, *entries in os.walk(folder, onerror=_raise):
        base = Path(root).relative_to(folder)
        folders, files = ([(base / name).as_posix() for name in names] for names in entries)
        yield folders, files


def _raise(error: OSError) -> None:
    raise error


def lexists(path: Path) -> bool:
    """Whether a path exists, also as a broken link; unlike os.path.lexists, it raises other errors of the disk."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def write_manifest(folder: Path, others: Iterable[str] = ()) -> None:
    """List all files of a folder: size in bytes, time of the last change in nanoseconds, inode and SHA-256.

    Args:
        folder: the folder of the saved model.
        others: folders that exist in the target already and were not created by a save; they are not listed.
    """
    listed: dict[str, dict[str, Any]] = {}
    for name in files_of(folder):
        if name != MANIFEST:
            state = (folder / name).stat()
            listed[name] = {"bytes": state.st_size, "modified": state.st_mtime_ns, "inode": state.st_ino}
            listed[name]["sha256"] = _hash(folder / name)
    content = {"folders": sorted({*folders_of(folder)} - {*others}), "files": listed}
    text = json.dumps(content, indent=1, ensure_ascii=False)
    (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")


def read_manifest(folder: Path) -> dict[str, Any] | None:
    """Read the manifest of a folder: ``files`` by name, and ``folders``; None if there is no manifest.

    Raises:
        ModelError: it is broken, or names a path outside the folder.
    """
    path = folder / MANIFEST
    if not lexists(path):
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
    """The files of an earlier save that still exist.

    Raises:
        ModelError: one of them was changed since, or is now a folder or a link.
    """
    listed = read_manifest(folder)
    if listed is None:
        return []
    names = [name for name in listed["files"] if lexists(folder / name)]
    for name in names:
        refuse_odd_folders(folder, name)
        path, entry = folder / name, listed["files"][name]
        if path.is_symlink() or not path.is_file() or _changed(path, entry):
            raise ModelError(
                f"{path} was changed after it was saved: save into another folder, or move that file away first"
            )
    return [*names, MANIFEST]


def refuse_foreign(folder: Path, names: Iterable[str], folders: Iterable[str], saved: Iterable[str]) -> None:
    """Refuse to save where a file that no save wrote would be replaced, or read as a part of the model.

    Args:
        folder: the target; it need not exist.
        names: files to write, as relative posix paths.
        folders: folders to create.
        saved: files that an earlier save wrote there.

    Raises:
        ModelError: there is such a file; the first one is named.
    """
    ours, inner = set(saved), sorted(folders)
    for name in (*inner, *sorted(names)):
        refuse_odd_folders(folder, name)
        path = folder / name
        if name not in ours and lexists(path) and (name not in inner or path.is_symlink() or path.is_file()):
            raise _foreign(folder, name)
    for parent in ("", *inner):
        for name in _names(folder / parent):
            whole = f"{parent}/{name}" if parent else name
            if whole not in ours and any(fnmatch(name, pattern) for pattern in READ):
                raise _foreign(folder, whole)


def _names(folder: Path) -> Iterator[str]:
    """The names of everything in a folder that is not a folder itself."""
    if folder.is_dir():
        yield from sorted(entry.name for entry in os.scandir(folder) if not entry.is_dir(follow_symlinks=False))


def _foreign(folder: Path, name: str) -> ModelError:
    return ModelError(
        f"{folder} holds {name}, which is not listed in {MANIFEST} as saved by Afterword: "
        "save into another folder, or move that file away first"
    )


def refuse_odd_folders(folder: Path, name: str) -> None:
    """Refuse a path that leads through a link, by which files would be written elsewhere, or through a file.

    Raises:
        ModelError: a parent of the path is a link or a file.
    """
    for parent in reversed(PurePosixPath(name).parents[:-1]):
        path = folder / parent
        if path.is_symlink() or (path.exists() and not path.is_dir()):
            raise _foreign(folder, parent.as_posix())


def check_names(names: Iterable[Any]) -> None:
    """Validate relative paths that were read from a file: they must stay inside their folder.

    Raises:
        ValueError: one does not, or no file can have such a name.
    """
    for name in names:
        parts = PurePosixPath(name).parts if isinstance(name, str) else ()
        odd = not parts or name.startswith("/") or ".." in parts or "\\" in name or "\0" in name
        if odd or len(name.encode()) > 1000 or any(len(part.encode()) > LONGEST for part in parts):
            raise ValueError  # as encode() does for a lone surrogate


def _changed(path: Path, entry: dict[str, Any]) -> bool:
    """Whether a file differs from its entry; a large file is read only if its time or inode differs."""
    state = path.stat()
    if state.st_size != entry["bytes"]:
        return True
    same = (state.st_mtime_ns, state.st_ino) == (entry["modified"], entry.get("inode"))
    return not (same and state.st_size >= LARGE) and _hash(path) != entry["sha256"]


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
