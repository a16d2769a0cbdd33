"""The rows of an index: their ids and hashes, which of them are new, and which are no longer in the input."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from ..errors import DataError
from ..jobs.rows import Item, as_text, kept_columns
from .index import Index, IndexInfo, first_line, written
from .write import MERGED, column, columns_of, merge

BATCH = 8192  # rows that are read of a table at a time
IDS = 1000  # ids in one deletion
SIZE = 16  # bytes of a digest


@dataclass(frozen=True)
class RowPlace:
    """A row of an index, without its text.

    Attributes:
        id, doc, chunk, start, end, hash: the columns.
        context: what its vector depends on beside its text; `encode` reads it.
    """

    id: str
    doc: str
    chunk: int
    start: int
    end: int
    hash: str
    context: Any = field(default=None, repr=False, compare=False)


class Located(NamedTuple):
    """Where the text of a row stands: its number in its document, its span, and the document's text or digest."""

    chunk: int
    start: int
    end: int
    document: str


def hash_of(text: str, info: IndexInfo, beside: str = "") -> str:
    """A hash of all that a vector depends on: its text, the encoder, the prompt and how texts are split.

    Args:
        text: of the row.
        info: what the index is made by.
        beside: what else the vector depends on: the whole text of a late chunk.
    """
    return _digest([text, info.identity, info.prompt, info.chunking, info.dimension, beside]).hex()


def _digest(values: Any) -> bytes:
    return hashlib.blake2b(json.dumps(values, ensure_ascii=False).encode(), digest_size=SIZE).digest()


class NewRows:
    """Takes the rows of an input, and hands on those that must be embedded.

    Args:
        info: what the index is made by.
        identify: from an item to the id of its document, or None where the hash of its text is its id.
        locate: from an item to where it stands.
        columns: the types of the kept columns.
        index: the index as it is; None at the first build.
        stored: the items are rows of stored vectors; their `line` is a number from 1, and no line of a file of texts.

    Attributes:
        counts: the rows that were ``known``, those of them whose other columns were ``updated``, and those that were
            ``repeated`` in the input.
        nameless: the lines of rejected rows without an id, which may be any row of the index.
    """

    def __init__(
        self,
        info: IndexInfo,
        identify: Callable[[Item], str | None],
        locate: Callable[[Item], Located],
        columns: Mapping[str, Any],
        index: Index | None = None,
        stored: bool = False,
    ) -> None:
        self.info, self.identify, self.locate, self.columns, self.stored = info, identify, locate, columns, stored
        self.counts: Counter[str] = Counter()
        self._index, self._known = index, {} if index is None else known_rows(index)
        self._changed: list[Item] = []
        self._seen: dict[bytes, bytes] = {}
        self._docs: dict[bytes, bytes] = {}
        self._rejected: set[bytes] = set()  # documents
        self.nameless: list[int] = []

    def new(self, items: Iterable[Item]) -> Iterator[Item]:
        """The rows that must be embedded; a row that is rejected passes on."""
        return (new for item in items if (new := self.take(item)) is not None)

    def take(self, item: Item) -> Item | None:
        """A row that must be embedded or is rejected, with its place; None if there is nothing to do."""
        place = located = None
        if item.problem is None:
            located = self.locate(item)
            item, place = self._placed(item, located)
        if place is None or located is None:
            self._stays(item)
            return item
        key, value = _digest(place.id), self._value(item, place)
        doc, whole = _digest(place.doc), self._value(item, place, located.document)
        if self.info.chunking:  # chunks of one document, or of two that have one id
            first, wanted = self._docs.get(doc), whole
            first = None if first is not None and first[len(whole) :] == item.line.to_bytes(8) else first
        else:
            first, wanted = self._seen.get(key), value
        if first is None:
            self._seen[key] = value + item.line.to_bytes(8)  # less than a tuple; there may be millions
            self._docs[doc] = whole + item.line.to_bytes(8)
            known = self._known.get(key)
            if known is None or known[:SIZE] != value[:SIZE]:
                return replace(item, beside=place)
            self.counts["known" if known == value else "updated"] += 1
            if known != value:
                self._change(replace(item, beside=place))
        elif first[: len(wanted)] == wanted:
            self.counts["repeated"] += 1
        elif located.chunk == 0:  # a document is rejected once
            other = self.named(int.from_bytes(first[len(wanted) :]))
            problem = f"has the id {place.doc[:80]!r} of {other}"
            if self.identify(item) is None:
                problem = f"has the text of {other} and different kept values: --id NAME keeps both"
            return replace(item, problem=problem, beside=place)
        return None

    def _change(self, item: Item) -> None:
        """Take new kept values of a row whose vector stays."""
        self._changed.append(item)
        if len(self._changed) >= MERGED:
            self.flush()

    def flush(self) -> None:
        """Write the kept values that changed.

        Raises:
            DataError: the index cannot be written, or a value does not fit its column.
        """
        import pyarrow as pa

        if self._changed and self._index is not None:
            columns = columns_of(self._changed, self.columns)
            schema = pa.schema([field for field in self._index.table.schema if field.name in columns])
            arrays = [column(columns[field.name], field) for field in schema]
            merge(self._index, pa.table(arrays, schema=schema), insert=False)
        self._changed = []

    def named(self, line: int) -> str:
        """A row in a message, as the list of rejected rows has it."""
        return f"row {line - 1}" if self.stored else f"the row in line {line}"

    def _placed(self, item: Item, located: Located) -> tuple[Item, RowPlace | None]:
        chunk, start, end, document = located
        id = self.identify(item)
        if id == "":
            return replace(item, problem="has an empty id"), None
        own = hash_of(item.text or "", self.info, document if self.info.late else "")
        doc = id or hash_of(document if self.info.chunking else item.text or "", self.info)
        number = f"#{chunk}" if self.info.chunking else ""
        return item, RowPlace(f"{doc}{number}", doc, chunk, start, end, own, item.beside)

    def _stays(self, item: Item) -> None:
        """A row of the index is not gone because its row in the input is rejected, unless its text is its id."""
        id = self.identify(item)
        if id:
            self._rejected.add(_digest(id))
        elif id == "" or item.text is None:
            self.nameless.append(item.line)

    @property
    def empty(self) -> bool:
        """Whether no row of the input could be used."""
        return not self._seen

    def _value(self, item: Item, place: RowPlace, document: str | None = None) -> bytes:
        """A hash of a row, or of its whole document."""
        kept = [values[0] for values in kept_columns([item], self.columns, parquet=True).values()]
        if document is not None:
            return _value_of(document, 0, 0, kept)
        return _value_of(place.hash, place.start, place.end, kept)

    def stale(self, index: Index, prune: bool) -> list[str]:
        """The ids of rows that are no longer in the input, which does not mean those that were rejected.

        Args:
            index: the index, after it was updated.
            prune: of all documents; else only of those that are in the input, of which some chunks are gone.
        """
        return [
            id
            for batch in batches(index, ["id", "doc"])
            for id, doc in zip(batch["id"].to_pylist(), batch["doc"].to_pylist(), strict=True)
            if _digest(id) not in self._seen
            and (prune or _digest(doc) in self._docs)
            and _digest(doc) not in self._rejected
        ]


def _value_of(hash: str, start: int, end: int, kept: Sequence[Any]) -> bytes:
    return _digest(hash) + _digest([start, end, *(as_text(value) for value in kept)])


def batches(index: Index, columns: Sequence[str]) -> Iterator[Any]:
    """Some columns of all rows, batch by batch.

    Raises:
        DataError: the index cannot be read.
    """
    search = index.table.search().select(list(columns)).limit(None)
    try:
        yield from search.to_batches(BATCH)
    except (ValueError, RuntimeError, OSError) as e:
        raise DataError(f"{index.folder} cannot be read: {first_line(e)}") from None


def known_rows(index: Index) -> dict[bytes, bytes]:
    """For each row of an index, by the digest of its id: that of what its vector depends on, and that of the rest."""
    found = {}
    names = ["id", "hash", "start", "end", *index.kept]
    for batch in batches(index, names):
        columns = [batch[name].to_pylist() for name in names]
        for id, hash, start, end, *kept in zip(*columns, strict=True):
            found[_digest(id)] = _value_of(hash, start, end, kept)
    return found


def delete(index: Index, ids: Sequence[str]) -> None:
    """Delete rows by their ids, whatever characters these hold.

    Raises:
        DataError: the index cannot be written.
    """
    if not ids:
        return
    with written(index.folder):
        for first in range(0, len(ids), IDS):
            quoted = ", ".join("'" + id.replace("'", "''") + "'" for id in ids[first : first + IDS])
            index.table.delete(f"id IN ({quoted})")
