"""The text index and the vector index of an index, and the recall of its searches, which is measured and raised."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError
from .index import VECTOR, Index
from .info import Recall
from .whole import whole, written

FLAT_BELOW = 100_000  # rows; a scan of fewer is quick, and exact
REFINE = 10
TOP = 10
NPROBES = 20  # partitions that are searched at first
KINDS = ("sq", "pq")
SAMPLE = 1000  # texts that the language is told from
LETTERS = 0.5  # share of letters that are not Latin, from which there are no stems
SEED = 0
UNKNOWN = "does not support the requested language"
SAME = 1e-6  # distances that differ by less are of the same vector

Queries = Callable[[Sequence[str]], NDArray[np.floating[Any]]]


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
    with whole(index), written(index.folder):
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
        kind: sq or pq; None = sq from `FLAT_BELOW` rows on.
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
    before = index.info.measured
    grown = before is None or before.nprobes is None or index.rows > 2 * before.rows
    if kind is None and (index.rows < FLAT_BELOW or (there and not grown)):
        return
    make = IvfPq if kind == "pq" else IvfSq
    with whole(index), written(index.folder):
        index.table.create_index(VECTOR, config=make(distance_type=index.info.metric), replace=True)


def optimize(index: Index) -> None:
    """Put new rows into the text index and the vector index, and remove versions older than a day.

    Raises:
        DataError: the index cannot be written.
    """
    with whole(index), written(index.folder):
        index.table.optimize(cleanup_older_than=timedelta(days=1))


def has_index(index: Index, column: str) -> bool:
    """Whether a column has an index: of its words, or of its vectors."""
    return any(column in found.columns for found in index.table.list_indices())


def half_texts(index: Index, number: int) -> list[str]:
    """Texts to search for that are no rows: the first halves of texts of the index, drawn with a fixed seed."""
    rows = sorted(random.Random(SEED).sample(range(index.rows), min(number, index.rows)))
    texts = index.table.take_offsets(rows).select(["text"]).to_arrow()["text"].to_pylist()
    return [half for text in texts if (half := first_half(text))]


def first_half(text: str) -> str:
    """The first half of a text: of its words, or of its characters where it has fewer than four words.

    >>> first_half("the bank of the river"), first_half("银行提高了利率")
    ('the bank', '银行提')
    """
    words = text.split()
    return " ".join(words[: len(words) // 2]) if len(words) > 3 else text[: len(text) // 2].strip()


def measure(index: Index, queries: NDArray[np.floating[Any]], wanted: float, held_out: bool = True) -> Recall:
    """Measure recall@10 of searches through the vector index, and raise ``nprobes`` until it is as wanted.

    Args:
        index: the index.
        queries: (q, D) vectors.
        wanted: the recall that is wanted.
        held_out: leave out a query that is the vector of a row, which is found too easily.

    Returns:
        The best that was found: its recall may be lower than wanted.
    """
    rows = index.rows
    if not has_index(index, VECTOR):
        return Recall(1.0, None, None, 0, rows)
    exact = [(query, _distances(index, query)) for query in queries]
    taken = [(query, found) for query, found in exact if found and not (held_out and found[0] <= SAME)]
    nprobes, most = NPROBES, max(int(rows**0.5), NPROBES)  # LanceDB makes no more partitions
    while True:
        shares = [recall_of(true, _distances(index, query, nprobes)) for query, true in taken]
        recall = float(np.mean(shares)) if shares else 1.0
        if recall >= wanted or nprobes >= most:
            return Recall(recall, nprobes, REFINE, len(taken), rows)
        nprobes = min(2 * nprobes, most)


def recall_of(true: Sequence[float], found: Sequence[float]) -> float:
    """The share of the nearest rows that were found, by their distances: rows at equal distances are equally right.

    >>> recall_of([0.1, 0.2], [0.1, 0.3])
    0.5
    """
    return sum(distance <= true[-1] + SAME for distance in found) / len(true) if true else 1.0


def _distances(index: Index, query: NDArray[np.floating[Any]], nprobes: int | None = None) -> list[float]:
    search = index.table.search(query, vector_column_name=VECTOR).distance_type(index.info.metric).limit(TOP)
    search = search.bypass_vector_index() if nprobes is None else search.nprobes(nprobes).refine_factor(REFINE)
    found: list[float] = search.select(["_distance"]).to_arrow()["_distance"].to_pylist()
    return found
