"""Progress on stderr: a bar with the rate and the time left, or lines where it is no terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from itertools import accumulate
from types import TracebackType
from typing import Any

from .console import say

EVERY = 30.0  # seconds between the lines on a long measurement


def shown(progress: bool | None) -> bool:
    """Whether progress is shown: as the option says, or if stderr is a terminal."""
    return sys.stderr.isatty() if progress is None else progress


def say_loading(model: str, progress: bool | None) -> None:
    """Say that the model is being loaded, which may take a while, where progress is shown."""
    if shown(progress):
        say(f"loading {model} ...")


class CountedBar:
    """The progress of a measurement: a bar on stderr if it is a terminal, else a line after each `EVERY` seconds.

    Args:
        what: is measured.
        unit: of what is counted, in the plural.
        total: number of them; None if it is not known.
        clock: gives the time in seconds.
        show: True draws the bar in any case, and False shows nothing.
    """

    def __init__(
        self,
        what: str,
        unit: str,
        total: int | None = None,
        clock: Callable[[], float] = time.perf_counter,
        show: bool | None = None,
    ) -> None:
        self.what, self.unit, self.total, self.clock, self.show = what, unit, total, clock, show
        self.done, self.start = 0, clock()
        self._said = self.start
        self._bar: Any = None

    def __enter__(self) -> CountedBar:
        """Draw the bar."""
        self.start = self._said = self.clock()
        if shown(self.show):
            from tqdm import tqdm

            self._bar = tqdm(desc=self.what, total=self.total, unit=f" {self.unit}", leave=False)
        return self

    def update(self, count: int = 1) -> None:
        """Called when so many more are done."""
        self.done += count
        now = self.clock()
        if self._bar is not None:
            self._bar.update(count)
        elif self.show is None and now - self._said >= EVERY and self.done != self.total:
            self._said, spent = now, now - self.start
            if self.total is None:
                say(f"{self.what}: {self.done:,} {self.unit} in {clock_time(spent)}")
            else:
                left = clock_time((self.total - self.done) * spent / self.done)
                say(f"{self.what}: {self.done:,} of {self.total:,} {self.unit}, left {left}")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.close()


class RowsBar:
    """A progress bar for the rows of a file.

    Args:
        total: the length of the input, in bytes or rows; None if it is not known.
        show: whether to draw it; None = if stderr is a terminal.
        clock: gives the time in seconds.

    Attributes:
        seconds: the time since the bar was opened.
        left: the time left in seconds, estimated from the part of the input that this run has embedded; None if it is
            not known.
    """

    def __init__(
        self, total: int | None, show: bool | None = None, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.total, self.show, self.clock = total, shown(show), clock
        self.start, self.seconds = clock(), 0.0
        self.left: float | None = None
        self._began: float | None = None  # when the first window began
        self._bar: Any = None
        self._before, self._window = (0, 0), (0, 0)  # (how far the input was read, rows)
        self._skipped = (0, 0)  # the same, for windows that an earlier run has embedded
        self._inside = 0.0
        self._work: list[int] = []

    def __enter__(self) -> RowsBar:
        """Draw the bar."""
        self.start = self.clock()
        if self.show:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

            self._bar = Progress(
                BarColumn(), TextColumn("{task.percentage:>3.0f} %" if self.total else ""),
                TextColumn("{task.fields[rows]:,} rows"), TextColumn("{task.fields[rate]} rows/s"),
                TimeElapsedColumn(), TextColumn("{task.fields[left]}"), console=Console(stderr=True),
            )  # fmt: skip
            self._task = self._bar.add_task("", total=self.total, rows=0, rate="-", left="")
            self._bar.start()
        return self

    def begin(self, at: int, rows: int, characters: Sequence[int] = ()) -> None:
        """Called when a window begins.

        Args:
            at: how far the input was read.
            rows: the number of rows that were read in all.
            characters: of each text of the window that is embedded, in any order; its longest texts come first.
        """
        self._began = self.clock() if self._began is None else self._began
        self._window, self._inside = (at, rows), 0.0
        self._work = list(accumulate(sorted(characters, reverse=True)))

    def more(self, rows: float) -> None:
        """Called when so many more rows of the window were embedded; a row that is embedded again counts once."""
        (at, done), (end, all_rows) = self._before, self._window
        self._inside = min(self._inside + rows, len(self._work) or all_rows - done)
        self._draw(at + (end - at) * self._share(), done + self._inside)

    def _share(self) -> float:
        """The share of the window's characters that was embedded; of its rows, where characters are not known."""
        (_, done), (_, rows) = self._before, self._window
        if not self._work:
            return self._inside / max(rows - done, 1)
        whole = int(self._inside)
        started = self._work[whole - 1] if whole else 0
        ended = self._work[min(whole, len(self._work) - 1)]
        return (started + (ended - started) * (self._inside - whole)) / max(self._work[-1], 1)

    def end(self) -> None:
        """Called when the window was written."""
        self._before = self._window
        self._draw(*self._window)

    def skip(self, at: int, rows: int) -> None:
        """Called instead of the others, for a window that an earlier run has embedded."""
        (skipped, count), (before, done) = self._skipped, self._before
        self._skipped = skipped + at - before, count + rows - done
        self._before = self._window = at, rows
        self._draw(at, rows)

    def _draw(self, at: float, rows: float) -> None:
        now = self.clock()
        self.seconds = now - self.start
        spent = now - self._began if self._began is not None else 0.0
        embedded = at - self._skipped[0]
        if self.total and embedded > 0 and spent > 0:
            self.left = max(self.total - at, 0) * spent / embedded
        if self._bar is not None:
            rate = (rows - self._skipped[1]) / spent if spent > 0 else 0.0
            self._bar.update(
                self._task, completed=at, rows=int(rows), rate=f"{rate:.{0 if rate >= 10 else 1}f}",
                left="" if self.left is None else f"left {clock_time(self.left)}",
            )  # fmt: skip

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the bar, and leave it on the screen."""
        self.seconds = self.clock() - self.start
        if self._bar is not None:
            self._bar.stop()


def clock_time(seconds: float) -> str:
    """A time in hours, minutes and seconds.

    >>> clock_time(3725.2)
    '1:02:05'
    """
    whole = round(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"
