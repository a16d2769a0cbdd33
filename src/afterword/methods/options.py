"""Checks of the options of methods."""

from __future__ import annotations

from ..errors import MethodError


def choose(name: str, value: object, allowed: tuple[str | None, ...]) -> None:
    """Refuse a value that is not one of those allowed.

    Raises:
        MethodError: it is not.
    """
    if value not in allowed:
        raise MethodError(f"{name}={value!r}: choose one of {', '.join(map(str, allowed))}")


def variant_note(variant: str) -> str:
    """What a method's name says about its variant."""
    return "" if variant == "paper" else f" {variant}"


def unread(beside: str, **given: object) -> None:
    """Refuse options that another one decides, by the first of their names.

    Args:
        beside: the other one.
        given: per option, whether it was given.

    Raises:
        MethodError: one was.
    """
    if names := [name for name, value in given.items() if value]:
        raise MethodError(f"{names[0]} has no effect beside {beside}, which decides it: leave one of them out")
