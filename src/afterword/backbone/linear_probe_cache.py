"""A cache on disk for measurements of this machine. If it is lost, they are made again; no result depends on it."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

ENTRIES = 2000  # the most that are kept; the oldest are dropped


def folder() -> Path | None:
    """The folder of the cache: ``AFTERWORD_CACHE``, else the user's cache folder; None if there is none.

    An empty ``AFTERWORD_CACHE`` switches the cache off.
    """
    chosen = os.environ.get("AFTERWORD_CACHE")
    if chosen is not None:
        return Path(chosen) if chosen else None
    try:
        if sys.platform == "darwin":
            return Path.home() / "Library" / "Caches" / "afterword"
        if sys.platform == "win32":
            return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "afterword" / "Cache"
        named = Path(os.environ.get("XDG_CACHE_HOME") or "")  # a relative path is not valid, and is ignored
        return (named if named.is_absolute() else Path.home() / ".cache") / "afterword"
    except RuntimeError:  # there is no home folder
        return None


def read(name: str) -> dict[str, Any]:
    """The entries of a file in the cache; {} if there is none, or it cannot be read."""
    place = folder()
    if place is None:
        return {}
    try:
        kept = json.loads((place / name).read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return kept if isinstance(kept, dict) else {}


def add(name: str, entries: dict[str, Any]) -> None:
    """Add entries to a file in the cache, atomically. If it cannot be written, nothing happens."""
    place = folder()
    if place is None:
        return
    kept = {k: v for k, v in read(name).items() if k not in entries} | entries
    text = json.dumps(dict(list(kept.items())[-ENTRIES:]), indent=1)
    with suppress(OSError):
        place.mkdir(parents=True, exist_ok=True)
        handle, half = tempfile.mkstemp(dir=place, prefix=f".{name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(half, place / name)
        except BaseException:
            with suppress(OSError):
                os.unlink(half)
            raise
