"""Build an index of the rows of an input, or update it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ..errors import DataError, plural
from .console import REJECTED, interruptible, say
from .index_status import summary
from .model import ModelChoice
from .progress import RowsBar, say_loading

if TYPE_CHECKING:
    from ..files.lines import Reader
    from ..index.index import Index
    from ..index.rows import Located, NewRows
    from ..jobs.chunked import Chunking
    from ..jobs.embedder import MethodsEmbedder
    from ..jobs.items import Item
    from ..jobs.output_file import Output
    from ..jobs.store import Store, Totals
    from ..jobs.windows import Embedding, Progress
    from ..methods import AnyMethod

DOCUMENT = ("document", "passage", "corpus")
"""The names of prompts for documents, as `Encoder.encode_document` looks for them."""
ROWS = "rows.parquet"  # the rows of a first build, until they are in the table


@dataclass(frozen=True)
class Tuning:
    """How searches are made quick.

    Attributes:
        exact: no vector index is built.
        kind: of the vector index, as `tune.index_vectors` has it.
    """

    exact: bool
    kind: str | None


@dataclass(frozen=True)
class IndexWanted:
    """What a command asks for; the options of `afterword index` document it.

    Attributes:
        folder: of the index.
        choice: the model.
        methods: the method by name, or nothing.
        options: of `Encoder.encode`.
        chunk: the spelling of --chunk; "" if texts are not split.
        chunking: what it means.
        id: the column that holds ids.
        keep: the columns to keep.
        query_prompt_name, language, text_search, prune, tuning, rejects, window, progress: the options.
    """

    folder: Path
    choice: ModelChoice
    methods: dict[str, AnyMethod]
    options: dict[str, Any]
    chunk: str
    chunking: Chunking | None
    id: str | None
    keep: list[str]
    query_prompt_name: str | None
    language: str
    text_search: bool
    prune: bool
    tuning: Tuning
    rejects: Path | None
    window: int
    progress: bool | None

    @property
    def columns(self) -> list[str]:
        """The columns that are read beside the text."""
        return list(dict.fromkeys([*self.keep, *([] if self.id is None else [self.id])]))

    @property
    def listing(self) -> Path:
        """The file that lists rows without a vector."""
        from ..index.write import REJECTS

        return self.rejects or self.folder / REJECTS


class IndexRun:
    """A run with its model loaded.

    Args:
        wanted: what the command asks for.

    Attributes:
        embedder: embeds the texts.
        info: what rows are made by.
    """

    def __init__(self, wanted: IndexWanted) -> None:
        from ..index.info import IndexInfo
        from ..jobs.embedder import MethodsEmbedder
        from ..jobs.made_by import made_by

        say_loading(wanted.choice.model, wanted.progress)
        self.wanted = wanted
        embedder = MethodsEmbedder.open(wanted.choice, wanted.methods, wanted.options)
        self.embedder = replace(embedder, options=_document_options(embedder, wanted.options))
        choice = wanted.choice
        loading = {"revision": choice.revision, "max_length": choice.max_length, "dtype": choice.dtype}
        (base,) = made_by(
            self.embedder.encoder, self.embedder.methods, self.embedder.options, choice.model, probed=True
        ).values()
        self.info = IndexInfo(
            **vars(base), chunking=wanted.chunk, late=wanted.chunking is not None and wanted.chunking.late,
            overlap=0 if wanted.chunking is None else wanted.chunking.overlap,
            id_column=wanted.id, query_prompt_name=wanted.query_prompt_name, language=wanted.language,
            text_search=wanted.text_search, loading=loading,
        )  # fmt: skip

    def output(self, kinds: dict[str, Any]) -> Output:
        """The file of rows of a first build."""
        from ..index.index import JOB
        from ..index.write import COLUMNS
        from ..jobs.output_file import Output

        path = self.wanted.folder / JOB / ROWS
        return Output(path, self.wanted.listing, {**COLUMNS, **kinds}, overwrite=True, model=self.wanted.choice.model)

    def opened(self) -> Index | None:
        """The index as it is, which this encoder may update; None if there is none.

        Raises:
            DataError: it was made by another encoder, or in another way.
        """
        from ..index.guard import check_encoder, check_settings
        from ..index.index import Index, exists
        from ..index.write import create_from

        folder, left = self.wanted.folder, self.output({})
        index = Index.open(folder) if exists(folder) else None
        if index is None and left.file.is_file():
            index = create_from(folder, left.file)
        if index is None:
            return None
        _remove(left)
        check_encoder(folder, index.info, self.embedder.encoder)
        check_settings(index, self.info)
        return index

    def items(self, reader: Reader) -> Iterator[Item]:
        """The rows of the input, split where that is asked for; each keeps its id too."""
        from ..jobs.items import items_of

        wanted = self.wanted
        items = items_of(reader, None, None, wanted.columns)
        return items if wanted.chunking is None else wanted.chunking.items(items, self.embedder)

    def identify(self, item: Item) -> str | None:
        """The id of an item's document: "" where it has none, None where ids are hashes."""
        from ..jobs.items import as_text

        return None if self.wanted.id is None else as_text(item.kept.get(self.wanted.id)) or ""

    def locate(self, item: Item) -> Located:
        """Where an item stands in its document."""
        from ..index.rows import Located

        text, place = item.text or "", item.beside
        if place is None:
            return Located(0, 0, len(text), text)
        a, b = place.span
        start = b - len(place.text[a:b].lstrip())
        return Located(place.number, start, start + len(text), place.digest)

    def embedding(self, kinds: dict[str, Any]) -> Embedding:
        """How rows become vectors and columns."""
        from ..index.write import columns_of
        from ..jobs.items import Item
        from ..jobs.windows import Embedding

        chunking, embedder = self.wanted.chunking, self.embedder

        def encode(items: Sequence[Item], done: Progress) -> dict[str, Any]:
            if chunking is not None:
                chunks = [Item(item.line, item.text, None, item.beside.context) for item in items]
                return chunking.encode(chunks, embedder, done)
            return embedder([item.text or "" for item in items], None, done)

        return Embedding(encode, embedder.why_nan, lambda items: columns_of(items, kinds))


def _remove(left: Output) -> None:
    """Remove the rows of a first build that are in the table, and what a killed run left beside them."""
    from ..jobs.parts_folder import open_parts

    folder = left.file.parent
    if left.parts.is_dir():
        with open_parts(left, say) as parts:  # it was killed before it removed them
            parts.finished = True
    left.file.unlink(missing_ok=True)
    if folder.is_dir():
        with suppress(OSError):  # somebody's own file
            folder.rmdir()


def _document_options(embedder: MethodsEmbedder, options: dict[str, Any]) -> dict[str, Any]:
    if options["prompt_name"] is not None:
        return options
    name = next((name for name in DOCUMENT if name in (embedder.encoder.prompts or {})), None)
    return {**options, "prompt_name": name, "prompt": "" if name is None else None}


def check_names(names: Sequence[str]) -> None:
    """Refuse a kept column that an index cannot have.

    Raises:
        typer.BadParameter: its name is one of the index or of LanceDB, or holds a dot.
    """
    from ..index.index import OWN, RESERVED

    for name in names:
        if name in (*OWN, *RESERVED) or "." in name:
            why = "has a dot" if "." in name else "is one of the index's own"
            raise typer.BadParameter(
                f"the name {name!r} {why}: rename the column, or leave it out", param_hint="--keep"
            )


def build(wanted: IndexWanted, reader: Reader) -> int:
    """Build or update an index. Returns the exit code: 1 if a row was rejected.

    Args:
        wanted: what the command asks for.
        reader: the open input.
    """
    from ..index.rows import NewRows
    from ..index.write import check_folder, writing

    check_folder(wanted.folder)
    with writing(wanted.folder):
        run = IndexRun(wanted)
        index = run.opened()
        kinds = {name: reader.kinds[name] for name in wanted.keep}
        if index is not None:
            index.add_columns(kinds)
        rows = NewRows(run.info, run.identify, run.locate, kinds, index)
        with RowsBar(reader.total, wanted.progress) as bar:
            embed = _first if index is None else _update
            index, totals = embed(run, reader, rows, kinds, bar, index)
        return finish(run, rows, index, totals)


def finish(run: IndexRun, rows: NewRows, index: Index, totals: Totals) -> int:
    """Delete what is gone, make searches quick, and say what was done. Returns the exit code."""
    from ..index.rows import delete

    rows.flush()
    stale = rows.stale(index, False)
    if run.wanted.prune:
        stale = _pruned(rows, index, stale)
    delete(index, stale)
    tune(run, index)
    say(summary(totals, rows.counts, len(stale), index))
    if totals.rejected:
        say(f"{totals.rejected:,} rejected, listed in {run.wanted.listing}")
    return REJECTED if totals.rejected else 0


def _pruned(rows: NewRows, index: Index, stale: list[str]) -> list[str]:
    """The ids of rows that --prune deletes: only `stale` where rejected rows may be any others.

    Raises:
        DataError: no row of the input could be used.
    """
    gone = rows.stale(index, True)
    if gone and rows.empty:
        raise DataError(
            f"no row of the input can be used: --prune would delete {len(gone):,} of {plural(index.rows, 'row')} of "
            f"{index.folder}, and nothing is deleted. Give the whole input, or remove the folder"
        )
    if not rows.nameless or len(gone) == len(stale):
        return gone
    say(
        f"nothing is pruned: {plural(len(rows.nameless), 'rejected row')} without an id, the first of them "
        f"{rows.named(rows.nameless[0])}, may be among the {len(gone):,} that the input no longer has: mend or "
        "remove them, and prune again"
    )
    return stale


def _first(
    run: IndexRun, reader: Reader, rows: NewRows, kinds: dict[str, Any], bar: RowsBar, index: Index | None
) -> tuple[Index, Totals]:
    """Embed all rows into durable parts, and make the table of them in one commit."""
    from ..index.write import create_from
    from ..jobs.made_by import contract
    from ..jobs.parts_folder import open_parts

    output = run.output(kinds)
    output.file.parent.mkdir(exist_ok=True)
    embedding = run.embedding(kinds)
    infos = {"vector": run.info}
    with open_parts(output, say) as parts, interruptible(parts.kept):
        parts.numbers = rows.numbers
        before = parts.begin(embedding.encode([], lambda _: None), infos, contract(infos, run.embedder.encoder))
        if before:
            say(f"{plural(before, 'row')} done before")
        totals = _embedded(run, reader, rows, embedding, parts, bar)
    if not totals.rows:
        _remove(output)
        raise DataError(f"the input is empty: {run.wanted.folder} is not made")
    index = create_from(run.wanted.folder, output.file)
    _remove(output)
    return index, totals


def _update(
    run: IndexRun, reader: Reader, rows: NewRows, kinds: dict[str, Any], bar: RowsBar, index: Index | None
) -> tuple[Index, Totals]:
    """Embed the rows that the index does not have, and merge them."""
    from ..index.write import Merges
    from ..jobs.rejects import Rejects

    assert index is not None
    with Rejects(run.wanted.listing, say) as rejects:
        merges = Merges(index, rejects, rows.numbers)
        with interruptible(merges.kept):
            return index, _embedded(run, reader, rows, run.embedding(kinds), merges, bar)


def _embedded(run: IndexRun, reader: Reader, rows: NewRows, embedding: Embedding, store: Store, bar: RowsBar) -> Totals:
    from ..jobs.windows import embed_rows

    return embed_rows(reader, rows.new(run.items(reader)), embedding, store, bar, run.wanted.window)


def tune(run: IndexRun, index: Index) -> None:
    """Build the indexes of texts and vectors."""
    from ..index import tune as t

    tuning = run.wanted.tuning
    t.index_texts(index)
    t.index_vectors(index, tuning.kind, tuning.exact)
    t.optimize(index)
