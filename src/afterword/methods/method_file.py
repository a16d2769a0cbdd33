"""Read a method from a user's Python file: ``@file.py:name``."""

from __future__ import annotations

import os
import re
import sys
from contextlib import redirect_stdout
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from itertools import chain, count
from pathlib import Path
from threading import RLock
from types import ModuleType

from ..errors import MethodError
from .method import AnyMethod

SPELLING = re.compile(r"@(?P<path>.+\.py)(?P<rest>:.*)?", re.DOTALL)


def method_in_file(text: str) -> AnyMethod | None:
    """The method that ``@file.py:name`` names. The file is run, as ``python file.py`` would run it.

    Returns:
        The method; None if the text does not name a Python file.

    Raises:
        MethodError: there is no such file, it raises an error, or it holds no such method.
    """
    match = SPELLING.fullmatch(text.strip())
    if match is None:
        return None
    path, name = Path(match["path"]), (match["rest"] or "").removeprefix(":").strip()
    if not name:
        raise MethodError(f"{text!r} names a file and no method: write @{path}:NAME, with the name of one in that file")
    with _LOCK:
        values = vars(_run(path))
    value = values.get(name)
    if isinstance(value, AnyMethod):
        return value
    methods = ", ".join(key for key, value in values.items() if isinstance(value, AnyMethod)) or "none"
    if name not in values:
        raise MethodError(f"{path} has no {name!r}: its methods are {methods}")
    raise MethodError(f"{name!r} of {path} is a {type(value).__name__}, not a Method: the file's methods are {methods}")


_LOCK = RLock()
"""One thread runs a file at a time: another would find a module that is not complete."""


def _run(path: Path) -> ModuleType:
    """The file as a module. A file that was run or imported before is not run again: its classes stay the same."""
    where = path.expanduser().resolve()
    known = (module for module in list(sys.modules.values()) if _file(module, {path.name, where.name}) == where)
    if (module := next(known, None)) is not None:
        return module
    if not where.is_file():
        raise MethodError(f"{path} does not exist: give a Python file, as in @my_methods.py:name")
    spec = spec_from_file_location(_free_name(where), where)
    assert isinstance(spec, ModuleSpec)  # the ending is .py
    module = module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and annotations look there
    try:
        # not by the spec's loader: within a second it takes a file of one size for the one that it compiled before
        with redirect_stdout(sys.stderr):  # where vectors may be written to
            exec(compile(where.read_bytes(), str(where), "exec"), vars(module))
    except BaseException as e:
        del sys.modules[spec.name]
        if not isinstance(e, Exception | SystemExit):  # Ctrl-C
            raise
        reason = next(iter(str(e).splitlines()), "")
        raise MethodError(f"{path} cannot be run: {type(e).__name__}: {reason:.200}; correct the file") from e
    return module


def _file(module: ModuleType, names: set[str]) -> Path | None:
    """The file of a module, links followed, if it has one of these names.

    It is read from the module's dictionary: attribute access makes some modules import others.
    """
    file = getattr(module, "__dict__", {}).get("__file__")
    return Path(file).resolve() if isinstance(file, str) and os.path.basename(file) in names else None


def _free_name(path: Path) -> str:
    """A module name that is not in use: the file's name, if need be with a number."""
    stem = re.sub(r"\W", "_", path.stem)
    for name in chain([stem], (f"{stem}_{number}" for number in count(2))):
        if name not in sys.modules and ((spec := find_spec(name)) is None or _is(spec.origin, path)):
            return name
    raise AssertionError("numbers do not end")


def _is(origin: str | None, path: Path) -> bool:
    """Whether a module that could be imported lies at this path, links followed."""
    return origin is not None and Path(origin).resolve() == path
