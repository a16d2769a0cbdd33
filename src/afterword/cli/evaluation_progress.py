"""Show the progress of an evaluation: a line per finished task, and a progress bar for the current one."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any

from ..errors import one_line
from ..tasks.results import Result
from ..tasks.runner import Failure, ProgressListener
from .console import ending, say


class Shown(ProgressListener):
    """A progress listener that writes to stderr.

    Args:
        show: whether to draw the progress bar too; None = if stderr is a terminal.
    """

    def __init__(self, show: bool | None = None) -> None:
        self.show = sys.stderr.isatty() if show is None else show
        self.at = ""
        self._bar: Any = None

    def __enter__(self) -> Shown:
        """Draw the bar."""
        if self.show:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            self._bar = Progress(
                TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(),
                TextColumn("vectors, left"), TimeRemainingColumn(), console=Console(stderr=True),
            )  # fmt: skip
            self._task = self._bar.add_task("", total=None)
            self._bar.start()
        return self

    def task(self, name: str, number: int, total: int) -> None:
        """Called when a task begins."""
        self.at = f"{number}/{total} {name}"

    def texts(self, count: int) -> None:
        """Called with the number of vectors that the task needs."""
        if self._bar is not None:
            self._bar.reset(self._task, total=count, description=one_line(self.at))

    def done(self, count: int) -> None:
        """Called when so many more of them were computed."""
        if self._bar is not None:
            self._bar.advance(self._task, count)

    def scored(self, result: Result, candidate: str) -> None:
        """Called when a task is finished."""
        self._say(f"{self.at}: {candidate}: {100 * result.main:.2f}", *result.notes)

    def failed(self, failure: Failure) -> None:
        """Called when a task failed."""
        who = f"{failure.task}: {failure.candidate}" if failure.candidate else failure.task
        self._say(f"{who}: {ending(failure.error)[0]}")

    def replaced(self, name: str) -> None:
        """Called when the data of a task have changed since its saved result."""
        self._say(f"{name}: its data have changed: the old result is replaced")

    def _say(self, *parts: str) -> None:
        line = "; ".join(parts)
        if self._bar is None:
            say(line)
        else:
            self._bar.console.print(one_line(line), markup=False, highlight=False)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the bar."""
        if self._bar is not None:
            self._bar.stop()
