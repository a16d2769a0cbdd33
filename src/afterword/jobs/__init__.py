"""Embed files of texts into files of vectors, a window of rows at a time; rows without a vector are listed."""

from importlib import import_module
from typing import Any

PLACES = {"Job": ".job", "embed_files": ".embed_folder"}
__all__ = list(PLACES)


def __getattr__(name: str) -> Any:
    """What is imported when it is first asked for: it needs torch."""
    if name in PLACES:
        return getattr(import_module(PLACES[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
