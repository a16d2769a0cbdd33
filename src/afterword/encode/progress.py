"""A progress bar, or a function that is told."""

from __future__ import annotations

from typing import Any

from .limits import Limits


class progress:  # noqa: N801  (reads as a function: a context manager)
    """A bar on stderr, or a function that is told; neither where nobody asked.

    Args:
        total: texts to come.
        limits: say what was asked for.
    """

    def __init__(self, total: int, limits: Limits) -> None:
        self.bar: Any = None
        self.told = limits.show_progress_bar if callable(limits.show_progress_bar) else None
        if limits.show_progress_bar and self.told is None:
            from tqdm.auto import tqdm

            self.bar = tqdm(total=total, unit="text", desc="embedding")

    def __enter__(self) -> Any:
        return self.bar.update if self.bar is not None else self.told or (lambda _: None)

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.close()
