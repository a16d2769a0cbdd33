"""Embed files of texts into files of vectors, so that a run that was killed can be resumed."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

PLACES = {"Job": ".job", "embed_files": ".run"}
__all__ = ["Job", "Listener", "embed_files"]

JOB = "job.json"
ROW, ID, PROBLEM = "row", "id", "problem"  # columns of a shard; the last says why a row has no vector
VECTOR = "vector"  # the column of the vectors, if there is only one
CHUNK_COLUMNS = {"text": "text", "line": "number", "chunk": "number", "start": "number", "end": "number"}
WORD_COLUMNS = {"line": "number", "text": "text", "word": "text", "start": "number", "end": "number"}


class Listener:
    """Progress callbacks of a run, called in the caller's own thread; override those that you need."""

    def begin(self, rows: int, before: Any) -> None:
        """Called once, with the number of rows of the job, and the `job.JobResult` of earlier runs."""

    def more(self, rows: float) -> None:
        """Called with the number of rows that were embedded since the last call."""

    def done(self, number: int, counts: Mapping[str, int]) -> None:
        """Called when a shard is finished, with its `shard.Counts`."""


def __getattr__(name: str) -> Any:
    """Import a name when it is first used: some need torch."""
    if name in PLACES:
        return getattr(import_module(PLACES[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
