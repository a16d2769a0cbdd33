"""Show progress: as a bar, or by calling the user's function."""

from __future__ import annotations

from typing import Any

from .limits import Limits


class progress:  # noqa: N801  (reads as a function: a context manager)
    """A progress bar on stderr, or the user's function, or neither, as `Limits.show_progress_bar` says.

    Args:
        total: number of texts.
        limits: hold the option.
    """

    def __init__(self, total: int, limits: Limits) -> None:
        self.bar: Any = None
        self.on_progress = limits.show_progress_bar if callable(limits.show_progress_bar) else None
        if limits.show_progress_bar and self.on_progress is None:
            from tqdm.auto import tqdm

            self.bar = tqdm(total=total, unit="text", desc="embedding")

    def __enter__(self) -> Any:
        return self.bar.update if self.bar is not None else self.on_progress or (lambda _: None)

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.close()
