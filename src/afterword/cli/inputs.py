"""Moved to `option_groups`."""

from .option_groups import check_one, open_reader, read_form, stdin_bytes

__all__ = ["check_one", "open_reader", "read_form", "stdin_bytes"]
