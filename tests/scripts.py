"""A script of the project run in this process, as the file that it is: with its arguments and its environment."""

import io
import runpy
import sys
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass

import pytest


@dataclass(frozen=True)
class Ended:
    code: object
    out: str
    err: str


def script(path: object, *arguments: object, environment: Mapping[str, str] | None = None) -> Ended:
    """What it ends with. Its own exceptions pass.

    Args:
        path: of the file.
        arguments: its command line.
        environment: the variables that it sees besides this process's; by default none.
    """
    out, err, code = io.StringIO(), io.StringIO(), None
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", [str(path), *map(str, arguments)])
        for name, value in (environment or {}).items():
            patch.setenv(name, value)
        try:
            runpy.run_path(str(path), run_name="__main__")
        except SystemExit as end:
            code = end.code
    return Ended(code or 0, out.getvalue(), err.getvalue())
