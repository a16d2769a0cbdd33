"""Custom classes: the `kind` that identifies each in saved files, and hashes of their code."""

from __future__ import annotations

import hashlib
import inspect
import linecache
import sys
from types import FunctionType
from typing import Any, ClassVar

from ..errors import MethodError

PACKAGE = __name__.partition(".")[0]


def is_custom(cls: type) -> bool:
    """Whether a user defined the class: it is neither in this package nor in Python's standard library."""
    package = cls.__module__.partition(".")[0]
    return package != PACKAGE and package not in sys.stdlib_module_names


def code_hash(cls: type) -> str | None:
    """Hash the files (in a notebook, the cells) that define a class and its custom base classes.

    The hash covers everything in these files, but not code that they import from elsewhere.

    Args:
        cls: any class.

    Returns:
        32 hexadecimal digits; None for a class of this package, or if the source code is not available, as in an
        interactive Python session.
    """
    files = dict.fromkeys(file for base in cls.__mro__ if is_custom(base) and (file := _file(base)))
    for file in files:
        linecache.checkcache(file)
    lines = [line for file in files for line in linecache.getlines(file)]
    return hashlib.blake2b("".join(lines).encode(), digest_size=16).hexdigest() if lines else None


def _file(cls: type) -> str | None:
    """The file of a class's module; in a notebook, the name of the cell that defines the class's first function."""
    file: str | None = getattr(sys.modules.get(cls.__module__), "__file__", None)
    functions = (inspect.unwrap(value) for value in vars(cls).values() if isinstance(value, FunctionType))
    return file or next((function.__code__.co_filename for function in functions), None)


class Named:
    """Base of the classes that saved files refer to by `kind`: subclasses register themselves.

    Attributes:
        kind: the name in saved files; a class without it cannot be saved.
        kinds: the classes that saved files can refer to, by kind.
        code: the `code_hash` of a custom class, computed when the class was defined.
    """

    kind: ClassVar[str]
    kinds: ClassVar[dict[str, Any]]
    code: ClassVar[str | None] = None

    def __init_subclass__(cls, **options: object) -> None:
        """Register the class under its kind.

        Raises:
            MethodError: another class already uses this kind.
        """
        super().__init_subclass__(**options)
        cls.code = code_hash(cls)
        if kind := vars(cls).get("kind"):
            other = cls.kinds.get(kind, cls)
            if (other.__module__, other.__qualname__) != (cls.__module__, cls.__qualname__):
                taken = f"{other.__module__}.{other.__qualname__}"
                raise MethodError(f"kind={kind!r} of {cls.__name__} is already used by {taken}: choose a different one")
            cls.kinds[kind] = cls
