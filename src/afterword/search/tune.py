"""Build the text index and the vector index."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from ..errors import DataError
from .index import METRIC, VECTOR, Index, written

FLAT_BELOW = 100_000  # rows; a scan of fewer is quick, and exact
KINDS = ("sq", "pq")
SAMPLE = 1000  # texts that the language is told from
LETTERS = 0.5  # share of letters that are not Latin, from which there are no stems
UNKNOWN = "does not support the requested language"


def language_of(texts: Sequence[str]) -> str:
    """The language whose stems fit texts: English, or none where most letters are not Latin.

    >>> language_of(["The bank."]), language_of(["银行提高了利率 by 2 %"])
    ('English', 'none')
    """
    letters = [c for text in texts for c in text if c.isalpha()]
    other = sum(ord(c) > 0x24F for c in letters)
    return "none" if other > LETTERS * len(letters) else "English"


def index_texts(index: Index) -> None:
    """Build the text index, where the index has one and it is not there.

    Raises:
        DataError: there are no stems for this language, or the index cannot be written.
    """
    from lancedb.index import FTS

    if not index.info.text_search or has_index(index, "text"):
        return
    plain = index.info.language == "none"
    words = {} if plain else {"language": index.info.language}
    # Stop words stay: with this tokenizer, LanceDB 0.40 drops words beside them too ("the dog" is not found by "dog").
    config = FTS(
        base_tokenizer="icu", stem=not plain, remove_stop_words=False, lower_case=True, ascii_folding=True, **words
    )
    with written(index.folder):
        try:
            index.table.create_index("text", config=config)
        except ValueError as e:
            if UNKNOWN not in str(e):
                raise
            raise DataError(f"no text index for the language {index.info.language}: {e!s:.160}") from None


def index_vectors(index: Index, kind: str | None = None, exact: bool = False) -> None:
    """Build the vector index, where one is worth it.

    Args:
        index: the index.
        kind: sq or pq, built again if it is there; None = sq from `FLAT_BELOW` rows on, built once.
        exact: build none, and drop one that is there.

    Raises:
        DataError: the index cannot be written.
    """
    from lancedb.index import IvfPq, IvfSq

    there = has_index(index, VECTOR)
    if exact:
        if there:
            with written(index.folder):
                index.table.drop_index(f"{VECTOR}_idx")
        return
    if kind is None and (there or index.rows < FLAT_BELOW):
        return
    make = IvfPq if kind == "pq" else IvfSq
    with written(index.folder):
        index.table.create_index(VECTOR, config=make(distance_type=METRIC), replace=True)


def optimize(index: Index) -> None:
    """Put new rows into the text index and the vector index, and remove versions older than a day.

    Raises:
        DataError: the index cannot be written.
    """
    with written(index.folder):
        index.table.optimize(cleanup_older_than=timedelta(days=1))


def has_index(index: Index, column: str) -> bool:
    """Whether a column has an index: of its words, or of its vectors."""
    return any(column in found.columns for found in index.table.list_indices())
