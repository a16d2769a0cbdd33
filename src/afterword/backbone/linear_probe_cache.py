"""What was measured on this machine, kept between processes. Losing it costs a measurement, never a result."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

ENTRIES = 2000  # the oldest go beyond


def folder() -> Path | None:
    """Where measurements are kept: ``AFTERWORD_CACHE``, else the user's cache folder; None where there is none.

    An empty ``AFTERWORD_CACHE`` keeps nothing.
    """
    chosen = os.environ.get("AFTERWORD_CACHE")
    if chosen is not None:
        return Path(chosen) if chosen else None
    try:
        if sys.platform == "darwin":
            return Path.home() / "Library" / "Caches" / "afterword"
        if sys.platform == "win32":
            return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "afterword" / "Cache"
        named = Path(os.environ.get("XDG_CACHE_HOME") or "")  # a relative one is not valid, and is passed over
        return (named if named.is_absolute() else Path.home() / ".cache") / "afterword"
    except RuntimeError:  # no home
        return None


def read(name: str) -> dict[str, Any]:
    """What is kept under a name; {} where nothing is, or nothing that can be read."""
    place = folder()
    if place is None:
        return {}
    try:
        kept = json.loads((place / name).read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return kept if isinstance(kept, dict) else {}


def add(name: str, entries: dict[str, Any]) -> None:
    """Keep more under a name. The file appears whole; where it cannot be written, nothing happens."""
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
