"""Embed files of texts into files of vectors, a window of rows at a time; rows without a vector are listed."""

from importlib import import_module
from typing import Any

__all__ = ["Job"]


def __getattr__(name: str) -> Any:
    """`Job`, which is imported when it is first asked for: it needs torch."""
    if name in __all__:
        return import_module(".job", __name__).Job
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
