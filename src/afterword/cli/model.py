"""Moved to `option_groups`."""

from .option_groups import ModelChoice, check_condition, check_device, members_of, read_methods, short_name

__all__ = ["ModelChoice", "check_condition", "check_device", "members_of", "read_methods", "short_name"]
