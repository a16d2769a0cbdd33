"""Progress on stderr: a bar on a terminal, else a line each half minute."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

from .console import say

EVERY = 30.0  # seconds between lines


def shown(progress: bool | None) -> bool:
    """Whether a bar is drawn: as the option says, or if stderr is a terminal."""
    return sys.stderr.isatty() if progress is None else progress


def say_loading(model: str, progress: bool | None) -> None:
    """Say that the model is being loaded, which may take a while, where a bar is drawn."""
    if shown(progress):
        say(f"loading {model} ...")


class Bar:
    """The progress of a long task.

    Args:
        what: is done.
        unit: of what is counted, in the plural.
        total: number of them; None if it is not known.
        show: True draws the bar always, False shows nothing; None draws it on a terminal, and prints lines elsewhere.
        done: how many an earlier run has done.
        clock: gives the time in seconds.
    """

    def __init__(
        self,
        what: str,
        unit: str,
        total: float | None = None,
        show: bool | None = None,
        done: float = 0,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.what, self.unit, self.total, self.show, self.done = what, unit, total, show, done
        self._clock, self._before = clock, done
        self._start = self._said = clock()
        self._bar: Any = None

    @property
    def seconds(self) -> float:
        """The time since the bar was opened."""
        return self._clock() - self._start

    def __enter__(self) -> Self:
        """Draw the bar."""
        if shown(self.show):
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

            self._bar = Progress(
                TextColumn("{task.description}", markup=False), BarColumn(), TextColumn("{task.percentage:>3.0f} %"),
                TextColumn("{task.fields[counts]}"), TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(),
                console=Console(stderr=True), redirect_stdout=False,
            )  # fmt: skip
            self._task = self._bar.add_task(self.what, total=self.total, completed=self.done, counts="")
            self._bar.start()
        return self

    def read(self, rows: int, at: int, size: int | None) -> None:
        """Estimate the total, after ``rows`` rows were read from the first ``at`` of ``size`` bytes or rows."""
        if size and at:
            self.total = max(rows * size / at, self.done)

    def update(self, count: float = 1) -> None:
        """Count more as done."""
        self.done += count
        if self._bar is not None:
            rate = (self.done - self._before) / max(self.seconds, 1e-9)
            counts = f"{self.done:,.0f} {self.unit} {rate:,.{0 if rate >= 10 else 1}f} {self.unit}/s"
            self._bar.update(self._task, completed=self.done, total=self.total, counts=counts)
        elif self.show is None and self._clock() - self._said >= EVERY and self.done != self.total:
            self._said = self._clock()
            self._say()

    def _say(self) -> None:
        what = f"{self.what}: " if self.what else ""
        if self.total is None:
            say(f"{what}{self.done:,.0f} {self.unit} in {clock_time(self.seconds)}")
        else:
            left = (self.total - self.done) * self.seconds / (self.done - self._before)
            say(f"{what}{self.done:,.0f} of {self.total:,.0f} {self.unit}, left {clock_time(left)}")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the bar, and leave it on the screen."""
        if self._bar is not None:
            self._bar.stop()


CountedBar = Bar


class RowsBar(Bar):
    """The progress of the rows of a file, of which `size` is the length in bytes or rows."""

    def __init__(self, size: int | None, show: bool | None = None) -> None:
        super().__init__("", "rows", None, show)
        self._size = size

    def begin(self, at: int, rows: int, characters: Sequence[int] = ()) -> None:
        """Estimate the number of rows, after `rows` rows were read from the first `at` of the file."""
        self.read(rows, at, self._size)

    def more(self, rows: float) -> None:
        """Count rows as done."""
        self.update(rows)

    def end(self) -> None:
        """End a window."""

    def skip(self, at: int, rows: int) -> None:
        """Set the number of rows that an earlier run has done."""
        self.done = self._before = rows


def clock_time(seconds: float) -> str:
    """A time in hours, minutes and seconds.

    >>> clock_time(3725.2)
    '1:02:05'
    """
    seconds = round(seconds)
    return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
