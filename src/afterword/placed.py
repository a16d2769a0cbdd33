"""A model's folder, written beside its place and moved there whole: no half folder ever looks like one."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path

from .errors import AfterwordError, ModelError

WRITTEN = (
    "*.safetensors *.safetensors.index.json pytorch_model*.bin adapter_model.bin adapter_config.json config.json "
    "generation_config.json modules.json config_sentence_transformers.json sentence_*_config.json afterword.json "
    "tokenizer.json tokenizer_config.json special_tokens_map.json added_tokens.json vocab.json vocab.txt merges.txt "
    "*.model chat_template.* [0-9]_* [0-9][0-9]_*"
).split()
"""What belongs to a saved model: all of it is replaced; whatever else lies in the folder stays."""


@contextmanager
def placed(folder: Path) -> Iterator[Path]:
    """A new folder to write to, which takes its place in the end; if anything fails, what was there is still there.

    Args:
        folder: the place; folders above it are made.

    Raises:
        ModelError: it cannot be written, in one line.
    """
    folder = Path(os.path.realpath(folder))
    half = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}")
    try:
        half.mkdir(parents=True)
        yield half
        _open(half)
        _put(half, folder)
    except AfterwordError:
        raise
    except Exception as e:  # a full disk is told by OSError here, by errors of their own in safetensors and tokenizers
        reason = (e.strerror if isinstance(e, OSError) else None) or str(e) or type(e).__name__
        raise ModelError(f"{folder} cannot be written: {reason.splitlines()[0]}; what was there before is kept") from e
    finally:
        shutil.rmtree(half, ignore_errors=True)


def _open(half: Path) -> None:
    """Give every file the mode of a new one: safetensors keeps what it writes to its owner."""
    probe = half / ".mode"
    probe.touch()
    mode = probe.stat().st_mode & 0o777
    probe.unlink()
    for path in half.rglob("*"):
        if path.is_file():
            path.chmod(mode)


def _put(half: Path, folder: Path) -> None:
    """Move a finished folder to its place; of what was there, only files that are no part of a model stay."""
    if not folder.exists():
        half.rename(folder)
        return
    if not folder.is_dir():
        raise ModelError(f"{folder} is a file: give a folder")
    old = half.with_name(half.name + ".old")
    folder.rename(old)
    try:
        half.rename(folder)
    except OSError:
        old.rename(folder)
        raise
    for item in old.iterdir():
        if not any(fnmatch(item.name, pattern) for pattern in WRITTEN):
            item.rename(folder / item.name)
    shutil.rmtree(old)
