"""Train an encoder on text pairs, triplets or labelled texts with sentence-transformers' trainer."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .settings import Settings

if TYPE_CHECKING:
    from .run import train

__all__ = ["Settings", "train"]


def __getattr__(name: str) -> Any:
    """Import `train` on first use: unlike the settings, it needs torch and sentence-transformers."""
    if name == "train":
        return import_module(".run", __name__).train
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
