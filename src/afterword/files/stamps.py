"""Whether files are as they were, seen without reading them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..backbone.model_source import find
from ..errors import MissingExtra


def stamps(files: Iterable[Path]) -> list[dict[str, Any]]:
    """Path, size and times of each file: a program that changes a file can set its time back, but not ``ctime``."""
    states = [(path, path.stat()) for path in files]
    return [
        {"file": str(path), "size": s.st_size, "mtime_ns": s.st_mtime_ns, "ctime_ns": s.st_ctime_ns}
        for path, s in states
    ]


def model_stamps(model: str) -> list[dict[str, Any]]:
    """Those of all files of a model's folder, by their names' order; none if the model is not in a folder here."""
    try:
        folder = Path(find(model))
    except MissingExtra:
        return []
    return stamps(sorted(path for path in folder.rglob("*") if path.is_file())) if folder.is_dir() else []
