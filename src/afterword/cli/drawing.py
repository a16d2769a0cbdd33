"""Moved to `option_groups`."""

from .option_groups import check_plot

__all__ = ["check_plot"]
