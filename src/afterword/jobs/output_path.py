"""The paths of an output file and of its list of rejected rows, and what must hold of them before a model is loaded."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from ..errors import DataError, InputError
from .rejects import is_list


@dataclass(frozen=True)
class OutputFile:
    """The output file of a command.

    Args:
        path: the file, or a link to it.
        rejects: the file that lists rows without a vector; None = ``OUTPUT.rejects.jsonl``.
        overwrite: whether a file that exists is replaced.
    """

    path: Path
    rejects: Path | None = None
    overwrite: bool = False

    @property
    def file(self) -> Path:
        """The file that is written: where ``path`` is a link, the one that it points to."""
        return Path(os.path.realpath(self.path)) if self.path.is_symlink() else self.path

    @property
    def folder(self) -> Path:
        """The hidden folder of its job."""
        return self.file.with_name(f".{self.file.name}.job")

    @property
    def listing(self) -> Path:
        """The file that lists rows without a vector."""
        return self.rejects or self.path.with_name(self.path.name + ".rejects.jsonl")


def check_files(path: Path | None, listing: Path | None, source: Path | None, overwrite: bool) -> None:
    """Validate the files of a command, before a model is loaded.

    Args:
        path: the output; None = the standard output.
        listing: the list of rejected rows.
        source: the input.
        overwrite: whether files that exist are replaced.

    Raises:
        DataError: a folder does not exist or cannot be written.
        InputError: the output exists; two files are the same; the list would replace a different file.
    """
    written = [file for file in (path, listing) if file is not None]
    for file in written:
        check_place(file)
    if source is not None and any(same(file, source) for file in written):
        raise InputError(f"{source} is the input: choose another file")
    if path is not None and listing is not None and same(path, listing):
        raise InputError(f"{path} is named for the vectors and for the rejected rows: choose two files")
    if overwrite:
        return
    if path is not None and OutputFile(path).file.exists():
        raise InputError(f"{path} exists: choose another name, or --overwrite")
    if listing is not None and listing.exists() and listing.stat().st_size and not is_list(listing):
        raise InputError(f"{listing} exists and lists no rejected rows: choose another --rejects, or --overwrite")


def check_place(path: Path) -> None:
    """Refuse a path that no file can be written to.

    Raises:
        DataError: it is a folder or a device, or its own folder does not exist or cannot be written.
    """
    if path.exists() and not path.is_file():
        raise DataError(f"{path} is {'a folder' if path.is_dir() else 'not a file'}: give the name of a file")
    folder = Path(os.path.realpath(path)).parent
    if not folder.is_dir():
        raise DataError(f"{path} cannot be written: there is no folder {folder}: mkdir -p {folder}")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise DataError(f"{path} cannot be written: no file can be written into {folder}: chmod u+w {folder}")


def same(a: Path, b: Path) -> bool:
    """Whether two paths are one file, whatever links lead there."""
    try:
        return a.samefile(b)
    except OSError:  # one of them does not exist yet
        return os.path.realpath(a) == os.path.realpath(b)
