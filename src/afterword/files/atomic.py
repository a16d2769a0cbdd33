"""Atomic files and folders: written under a temporary name, and renamed once they are complete."""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from ..errors import AfterwordError, DataError, ModelError

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
SAVED = re.compile(r".+\.(json|safetensors|txt|csv|model|jinja|spm|py)|\d+_[A-Z]\w*")
"""Names that saving an encoder writes: files of the model, the tokenizer and `tune`, and a folder for each module."""


@contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """Write a file under a temporary name in the same folder, and rename it once it is complete and on disk.

    Args:
        path: the file; an existing file of that name is replaced at the end, or kept after any error.

    Yields:
        The open file.

    Raises:
        DataError: it cannot be written, or the disk is full.
    """
    temporary = path.with_name(f".afterword-{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync(path.parent)
    except BaseException as e:
        temporary.unlink(missing_ok=True)
        if isinstance(e, OSError) and (e.errno in FULL or e.filename == os.fspath(temporary)):
            raise DataError(f"{path} cannot be written: {e.strerror or e}") from e
        raise


@contextmanager
def atomic_folder(folder: Path, overwrite: bool = False) -> Iterator[Path]:
    """Write the folder of an encoder under a temporary name in the same place, and rename it once it is complete.

    Args:
        folder: the target; its parents are created.
        overwrite: replace the encoder that is saved there.

    Yields:
        A new folder to write to. After any error it is removed, and the target is unchanged.

    Raises:
        ModelError: the target is not empty and not to be overwritten, or it cannot be written.
    """
    folder = Path(os.path.realpath(folder))
    check_folder(folder, overwrite)
    new, old = (folder.with_name(f"{folder.name}.{secrets.token_hex(4)}.{end}") for end in ("tmp", "old"))
    try:
        new.mkdir(parents=True)
        yield new
        mode = new.stat().st_mode & 0o666
        for path in new.rglob("*"):
            if path.is_file():
                path.chmod(mode)  # safetensors lets only the owner read what it writes
                sync(path)
        check_folder(folder, overwrite)
        if folder.exists():
            folder.rename(old)
        new.rename(folder)
        shutil.rmtree(old, ignore_errors=True)
    except AfterwordError:
        raise
    except Exception as e:  # for a full disk, safetensors and tokenizers raise errors of their own, not OSError
        reason = (e.strerror if isinstance(e, OSError) else None) or str(e) or type(e).__name__
        raise ModelError(f"{folder} cannot be written: {reason.splitlines()[0]}; what was there before is kept") from e
    finally:
        shutil.rmtree(new, ignore_errors=True)


def check_folder(folder: Path, overwrite: bool = False) -> None:
    """Check, before a long computation, that an encoder can be saved in a folder.

    Raises:
        ModelError: it is a file; or it is not empty, and is not an encoder to overwrite.
    """
    if folder.exists() and not folder.is_dir():
        raise ModelError(f"{folder} is a file: choose another name for the folder")
    names = sorted(os.listdir(folder)) if folder.exists() else []
    if names and not overwrite:
        raise ModelError(
            f"{folder} exists and is not empty: choose another folder, or replace the encoder in it with overwrite=True"
        )
    other = next((name for name in names if not SAVED.fullmatch(name)), None)
    if names and (other or "modules.json" not in names):
        why = f"it holds {other}" if other else "it holds no modules.json"
        raise ModelError(f"{folder} is not a saved encoder and is not overwritten ({why}): choose another folder")


def check_target(path: Path) -> None:
    """Check, before a long computation, that a file can be written under this name.

    Raises:
        DataError: it is a folder, or its folder does not exist.
    """
    if path.is_dir():
        raise DataError(f"{path} is a folder: give the name of a file in it")
    if not path.parent.is_dir():
        raise DataError(f"{path} cannot be written: there is no folder {path.parent}; create it first")


def sync(path: Path) -> None:
    """Wait until a file, or the list of names in a folder, is on disk; does nothing on Windows."""
    if os.name == "posix":
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
