"""Build an index by vectors that are stored, or update it: those of a .parquet file or of a finished job."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import DataError, TextsUnknown
from .console import say
from .indexing import IndexRun, IndexWanted, check_names, finish

if TYPE_CHECKING:
    from ..jobs.output import Rejects
    from ..jobs.rows import Block
    from ..search.index import Index
    from ..search.stored import Reject

    Blocks = Iterable[tuple[list[Reject], Block]]

OF_FILE = ("prompt", "dimension", "normalized")
"""What the file says of its vectors, where the model alone does not."""


def build_from(wanted: IndexWanted, path: Path, every: bool) -> int:
    """Build or update an index. Returns the exit code: 1 if a row was rejected.

    Args:
        wanted: what the command asks for.
        path: a .parquet file, or the folder of a job.
        every: keep all columns that `embed` kept.
    """
    from ..jobs.output import Rejects
    from ..search.guard import check_encoder
    from ..search.rows import NewRows
    from ..search.stored import StoredRows
    from ..search.write import check_folder, writing

    check_folder(wanted.folder)
    stored = StoredRows(path)
    wanted = replace(wanted, id=stored.id) if wanted.id is None else wanted  # a job knows its ids
    if every:
        wanted = replace(wanted, keep=list(dict.fromkeys([*wanted.keep, *stored.kept(wanted.id)])))
    check_names(wanted.keep)
    names = wanted.columns
    if stored.unknown:
        say(f"warning: {path}: {TextsUnknown(stored.unknown)}")
    kinds = {name: kind for name, kind in stored.kinds(names).items() if name in wanted.keep}
    with writing(wanted.folder):
        run = IndexRun(wanted)
        check_encoder(path, stored.info, run.embedder.encoder)
        run.info = replace(run.info, **{name: getattr(stored.info, name) for name in OF_FILE})
        index = run.opened()
        if index is not None:
            index.add_columns(kinds)
        rows = NewRows(run.info, run.identify, run.locate, kinds, index, stored=True)
        with Rejects(wanted.listing, say) as rejects:
            blocks = stored.blocks(rows, names, kinds)
            index, count = _create(run, blocks, kinds, rejects) if index is None else _merge(index, blocks, rejects)
        return finish(run, rows, index, count, rejects.count)


def _create(
    run: IndexRun, blocks: Iterator[tuple[list[Reject], Block]], kinds: dict[str, Any], rejects: Rejects
) -> tuple[Index, int]:
    import pyarrow as pa

    from ..search.index import Index, schema_of
    from ..search.tune import language_of
    from ..search.write import batch_of

    good = _accepted(blocks, rejects)
    first = next((block for block in good if len(block)), None)
    if first is None:
        raise DataError(f"no row has a vector: {run.wanted.folder} is not made")
    info = replace(run.info, language=run.info.language or language_of(first.columns["text"]))
    schema = schema_of(info, [pa.field(name, kind) for name, kind in kinds.items()])
    reader = pa.RecordBatchReader.from_batches(schema, (batch_of(block, schema) for block in chain([first], good)))
    index = Index.create(run.wanted.folder, reader, info)
    return index, index.rows


def _merge(index: Index, blocks: Blocks, rejects: Rejects) -> tuple[Index, int]:
    from ..search.write import Merges

    merges, count = Merges(index), 0
    for block in _accepted(blocks, rejects):
        merges.add(block)
        count += len(block)
    merges.flush()
    return index, count


def _accepted(blocks: Blocks, rejects: Rejects) -> Iterator[Block]:
    for rejected, block in blocks:
        for one in rejected:
            rejects.add(*one)
        yield block
