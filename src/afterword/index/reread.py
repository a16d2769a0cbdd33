"""The rows of an index as an input: their texts are embedded again, by another encoder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..errors import DataError
from ..files.lines import Reader, Record
from ..files.parquet import value_of
from .index import VECTOR, Index
from .rows import batches

OF_IDS = ("identity", "prompt", "dimension")
"""What an id that is a hash depends on, beside its text and the chunking."""


class IndexReader(Reader):
    """The rows of an index, in its own order: all columns but the vectors and the hashes.

    Args:
        index: the index; rows that others write meanwhile are not seen.

    Raises:
        DataError: its vectors are those of late chunks, which the texts of rows do not give.
    """

    def __init__(self, index: Index) -> None:
        if index.info.late:
            raise DataError(
                f"{index.folder} has --late chunks, whose vectors need the whole texts, and an index does not hold "
                "these: give them by --input"
            )
        self.index, self.total = index, index.rows
        self.columns = [name for name in index.table.schema.names if name not in (VECTOR, "hash")]
        self.kinds = {name: index.table.schema.field(name).type for name in index.kept}

    def __iter__(self) -> Iterator[Record]:
        for batch in batches(self.index, self.columns):
            for row in range(batch.num_rows):
                self.at += 1
                yield Record(self.at, {name: value_of(batch[name][row]) for name in self.columns})


def ids_of(index: Index) -> Mapping[str, Any]:
    """What the ids of an index are hashes by, as `IndexInfo.ids` has it; empty where they are a column of the input."""
    info = index.info
    return {} if info.id_column is not None else info.ids or {name: getattr(info, name) for name in OF_IDS}
