"""The rows that have no vector: each is listed with its line and the reason."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from ..files.write import whole

SHOWN = 10  # rejected rows that are shown where no file lists them


class Rejects:
    """Rows without a vector, listed in a file that is there only if there are any.

    Args:
        path: of the file; None: the first of them are only told.
        tell: takes a line for a person to read, where there is no file.
    """

    def __init__(self, path: Path | None, tell: Callable[[str], object] = lambda _: None) -> None:
        self.path, self.tell, self.count = path, tell, 0
        self._stack = ExitStack()
        self._file: BinaryIO | None = None

    def __enter__(self) -> Rejects:
        """Nothing is opened yet."""
        return self

    def add(self, row: int, line: int, reason: str) -> None:
        """List a row: its number in the output from 0, its line in the input from 1, and why."""
        self.count += 1
        if self.path is None:
            if self.count <= SHOWN:
                self.tell(f"rejected: line {line}: {reason}")
            return
        self._file = self._file or self._stack.enter_context(whole(self.path))
        self._file.write((json.dumps({"row": row, "line": line, "reason": reason}) + "\n").encode())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Keep the file if all went well; one that an earlier run left goes where there is nothing to list."""
        self._stack.__exit__(kind, error, trace)
        if error is None and self.path is not None and not self.count:
            self.path.unlink(missing_ok=True)
