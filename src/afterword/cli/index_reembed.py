"""Build an index of the texts of another one, by another model: ids, kept columns and chunks stay."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ..errors import DataError
from .indexing import IndexRun, IndexWanted, build

if TYPE_CHECKING:
    from ..files.lines import Reader
    from ..index.index import Index
    from ..index.rows import Located
    from ..jobs.items import Item


@dataclass(frozen=True)
class OldPlace:
    """Where a row stood in the other index; the attributes are its columns."""

    doc: str
    chunk: int
    start: int
    end: int


class ReembedRun(IndexRun):
    """A run over the rows of another index.

    Args:
        wanted: what the command asks for, with the settings of the other index.
        old: the other index.
    """

    def __init__(self, wanted: IndexWanted, old: Index) -> None:
        from ..index.reread import ids_of

        super().__init__(wanted)
        self.old = old
        self.info = replace(self.info, ids=ids_of(old), overlap=old.info.overlap)

    def opened(self) -> Index | None:
        """The index as it is; see `IndexRun.opened`.

        Raises:
            DataError: its ids are hashes, and not those of the other index.
        """
        ids = self.info.ids
        index = super().opened()
        if index is not None and index.info.ids != ids:
            raise DataError(
                f"{index.folder} has ids that are no ids of {self.old.folder}: give the name of a new folder"
            )
        return index

    def items(self, reader: Reader) -> Iterator[Item]:
        """The rows of the other index."""
        from ..jobs.items import Item

        for record in reader:
            row = record.fields or {}
            place = OldPlace(*(row[name] for name in ("doc", "chunk", "start", "end")))
            yield Item(record.line, row["text"], None, place, {name: row[name] for name in self.wanted.keep})

    def identify(self, item: Item) -> str | None:
        """The id of an item's document."""
        return str(item.beside.doc)

    def locate(self, item: Item) -> Located:
        """Where an item stands in its document."""
        from ..index.rows import Located

        place = item.beside
        return Located(place.chunk, place.start, place.end, item.text or "", apart=True)


def reembed(wanted: IndexWanted, folder: Path) -> int:
    """Build an index of the texts of another, or update it. Returns the exit code: 1 if a row was rejected.

    Args:
        wanted: what the command asks for; ids, kept columns and chunks are those of the other index.
        folder: of the other index.
    """
    from ..index.index import Index
    from ..index.reread import IndexReader

    if wanted.folder.resolve() == folder.resolve():
        raise typer.BadParameter(f"{folder} is the new index too: choose another folder", param_hint="--from-index")
    old = Index.open(folder)
    wanted = replace(
        wanted, chunk=old.info.chunking, id=old.info.id_column, keep=old.kept,
        language=wanted.language or (old.info.language if old.info.text_search else ""),
    )  # fmt: skip
    return build(wanted, IndexReader(old), lambda given: ReembedRun(given, old))
