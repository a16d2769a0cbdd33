"""Show progress: as a bar, or by calling the user's function."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from .limits import Limits


class progress:  # noqa: N801  (reads as a function: a context manager)
    """A progress bar on stderr, or the user's function, or neither, as `Limits.show_progress_bar` says.

    Args:
        total: number of texts.
        limits: hold the option.
        units: number of units that are counted, if not texts: of each text its vector by each method of an ensemble.
    """

    def __init__(self, total: int, limits: Limits, units: int | None = None) -> None:
        self.total, self.units = total, total if units is None else units
        self.done = 0
        self.bar: Any = None
        self.on_progress = limits.show_progress_bar if callable(limits.show_progress_bar) else None
        if limits.show_progress_bar and self.on_progress is None:
            from tqdm.auto import tqdm

            self.bar = tqdm(total=total, unit="text", desc="embedding")

    def __enter__(self) -> Any:
        show = self.bar.update if self.bar is not None else self.on_progress
        return (lambda _: None) if show is None else show if self.units == self.total else partial(self._count, show)

    def _count(self, show: Callable[[int], object], units: int) -> None:
        before = self.done * self.total // self.units
        self.done += units
        if texts := self.done * self.total // self.units - before:
            show(texts)

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.close()
