"""Classes of a user's own: a hash of their code, so that the fingerprint changes when it does, and their kinds."""

from __future__ import annotations

import hashlib
import inspect
import linecache
import sys
from types import FunctionType
from typing import Any

from ..errors import MethodError

PACKAGE = __name__.partition(".")[0]


def is_own(cls: type) -> bool:
    """Whether a class is a user's own: not of this package, and not of Python.

    >>> is_own(int)
    False
    """
    package = cls.__module__.partition(".")[0]
    return package != PACKAGE and package not in sys.stdlib_module_names


def code_hash(cls: type) -> str | None:
    """A hash of the files (in a notebook, the cells) that define a class and its own base classes.

    It covers helpers in the same file, but not code that is imported from other files.

    Args:
        cls: any class.

    Returns:
        32 hexadecimal digits; None for a class of this package, and where the code cannot be found, as in a session
        of bare Python.
    """
    files = dict.fromkeys(file for base in cls.__mro__ if is_own(base) and (file := _file(base)))
    for file in files:
        linecache.checkcache(file)
    lines = [line for file in files for line in linecache.getlines(file)]
    return hashlib.blake2b("".join(lines).encode(), digest_size=16).hexdigest() if lines else None


def enter(cls: Any, kinds: dict[str, Any]) -> None:
    """Give a class the hash of its code, and enter it under its kind, if it has one of its own.

    Args:
        cls: a class with ``kind`` and ``code``.
        kinds: the classes that files can name.

    Raises:
        MethodError: the kind is no name, or is that of another class.
    """
    cls.code = code_hash(cls)
    kind = vars(cls).get("kind")
    if kind is None:
        return
    if not isinstance(kind, str) or not kind.isidentifier():
        raise MethodError(f"kind={kind!r} of {cls.__name__}: give a name of letters, digits and _")
    before = kinds.get(kind, cls)
    if _path(before) != _path(cls):
        raise MethodError(f"kind={kind!r} of {cls.__name__} is already that of {_path(before)}: choose another")
    kinds[kind] = cls


def _path(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _file(cls: type) -> str | None:
    """The file of a class's module; in a notebook, the name under which Python keeps the cell of its first function."""
    file: str | None = getattr(sys.modules.get(cls.__module__), "__file__", None)
    functions = (inspect.unwrap(value) for value in vars(cls).values() if isinstance(value, FunctionType))
    return file or next((function.__code__.co_filename for function in functions), None)
