"""Moved to `option_groups`."""

from .option_groups import ModelChoice, check_condition, check_device, members_of, read_methods, short_name, title_of

__all__ = ["ModelChoice", "check_condition", "check_device", "members_of", "read_methods", "short_name", "title_of"]
