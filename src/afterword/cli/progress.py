"""A progress bar on stderr, with the rate and the time left."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any


class RowsBar:
    """A progress bar for the rows of a file.

    Args:
        total: the length of the input, in bytes or rows; None if it is not known.
        show: whether to draw it; None = if stderr is a terminal.

    Attributes:
        seconds: the time since the bar was opened.
    """

    def __init__(self, total: int | None, show: bool | None = None) -> None:
        self.total = total
        self.show = sys.stderr.isatty() if show is None else show
        self.start = self.seconds = time.perf_counter()
        self._bar: Any = None
        self._before, self._window = (0, 0), (0, 0)  # (how far the input was read, rows)
        self._inside = 0.0

    def __enter__(self) -> RowsBar:
        """Draw the bar."""
        self.start = time.perf_counter()
        if self.show:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

            self._bar = Progress(
                BarColumn(), TextColumn("{task.percentage:>3.0f} %" if self.total else ""),
                TextColumn("{task.fields[rows]} rows"), TextColumn("{task.fields[rate]:.0f}/s"),
                TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(),
                console=Console(stderr=True), speed_estimate_period=120,
            )  # fmt: skip
            self._task = self._bar.add_task("", total=self.total, rows=0, rate=0.0)
            self._bar.start()
        return self

    def begin(self, at: int, rows: int) -> None:
        """Called when a window begins: the input is read up to `at`, and `rows` rows were read in all."""
        self._window, self._inside = (at, rows), 0.0

    def more(self, rows: float) -> None:
        """Called when so many more rows of the window were embedded; a row that is embedded again counts once."""
        (at, done), (end, all_rows) = self._before, self._window
        self._inside = min(self._inside + rows, all_rows - done)
        share = self._inside / max(all_rows - done, 1)
        self._draw(at + (end - at) * share, done + self._inside)

    def end(self) -> None:
        """Called when the window was written."""
        self._before = self._window
        self._draw(*self._window)

    def _draw(self, at: float, rows: float) -> None:
        self.seconds = time.perf_counter() - self.start
        if self._bar is not None:
            self._bar.update(self._task, completed=at, rows=int(rows), rate=rows / max(self.seconds, 1e-9))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the bar, and leave it on the screen."""
        self.seconds = time.perf_counter() - self.start
        if self._bar is not None:
            self._bar.stop()
