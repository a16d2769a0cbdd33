"""Embed files of texts into files of vectors, a window of rows at a time; rows without a vector are listed."""

from importlib import import_module
from typing import Any

PLACES = {"Job": ".job", "embed_files": ".run"}
__all__ = list(PLACES)

JOB = "job.json"  # what a job was begun with
ROW, PROBLEM = "row", "problem"  # columns of a shard: the row's number, and why it has no vector
VECTOR = "vector"  # the name of a row's vector, if there is only one
CHUNK_COLUMNS = {"text": "text", "line": "number", "chunk": "number", "start": "number", "end": "number"}
WORD_COLUMNS = {"line": "number", "text": "text", "word": "text", "start": "number", "end": "number"}


def __getattr__(name: str) -> Any:
    """What is imported when it is first asked for: it needs torch."""
    if name in PLACES:
        return getattr(import_module(PLACES[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
