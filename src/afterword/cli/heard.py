"""What a run says besides its result: one line each, on stderr."""

from __future__ import annotations

import logging
import statistics
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from ..errors import TextsCut


def say(line: str) -> None:
    """One line on stderr."""
    with suppress(OSError, ValueError):  # a closed stderr is no reason to fail
        print(" ".join(line.split()), file=sys.stderr, flush=True)


@contextmanager
def heard() -> Iterator[None]:
    """Warnings and log messages as one line each; a warning once; texts that were cut summed up at the end."""
    cut, seen = Tally(), set[str]()

    def show(message: Any, *_: Any, **__: Any) -> None:
        if isinstance(message, TextsCut):
            cut.add(message.lost, message.texts, message.max_length)
        elif str(message) not in seen:
            seen.add(str(message))
            say(f"warning: {message}")

    handler, logger = _Lines(), logging.getLogger("afterword")
    with warnings.catch_warnings():
        warnings.resetwarnings()
        for quiet in (DeprecationWarning, PendingDeprecationWarning, FutureWarning, ImportWarning, ResourceWarning):
            warnings.simplefilter("ignore", quiet)
        warnings.simplefilter("always", UserWarning, append=True)
        warnings.showwarning = show
        logger.addHandler(handler)
        try:
            yield
        finally:
            logger.removeHandler(handler)
            cut.say()


class _Lines(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        """Say a message in one line."""
        say(f"{record.levelname.lower()}: {record.getMessage()}")


@dataclass
class Tally:
    """Texts that were cut, over all windows of a run."""

    lost: Counter[int] = field(default_factory=Counter)
    texts: int = 0
    max_length: int | None = None

    def add(self, lost: Sequence[int], texts: int, max_length: int | None) -> None:
        """Count those of a window."""
        self.lost.update(lost)
        self.texts += texts
        self.max_length = max_length

    def say(self) -> None:
        """Tell how many there were, and what they lost."""
        if self.lost:
            say(
                f"warning: {self.lost.total()} texts were cut to {self.max_length} tokens: they lost "
                f"{statistics.median(self.lost.elements()):.0f} tokens in the middle, {max(self.lost)} at most"
            )
