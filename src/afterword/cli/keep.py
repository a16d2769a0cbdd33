"""Moved to `option_groups`."""

from .option_groups import read_keep

__all__ = ["read_keep"]
