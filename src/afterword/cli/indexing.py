"""Build an index of the rows of an input, or update it."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
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
    from ..jobs.output import Rejects
    from ..jobs.recipe import Chunking, MethodsEmbedder
    from ..jobs.rows import Embedding, Item, Progress
    from ..methods import AnyMethod
    from ..search.index import Index
    from ..search.rows import Located, NewRows

DOCUMENT = ("document", "passage", "corpus")
"""The names of prompts for documents, as `Encoder.encode_document` looks for them."""


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
        from ..search.write import REJECTS

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
        from ..jobs.recipe import MethodsEmbedder
        from ..jobs.shard import made_by
        from ..search.index import IndexInfo

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

    def opened(self) -> Index | None:
        """The index as it is, or what there is of its first build, which this encoder may go on with; None without.

        Raises:
            DataError: it was made by another encoder, or in another way.
        """
        from ..search.guard import check_encoder, check_settings
        from ..search.index import JOB, Index, exists

        folder = next((one for one in (self.wanted.folder, self.wanted.folder / JOB) if exists(one)), None)
        if folder is None:
            return None
        if folder == self.wanted.folder:  # a first build that was killed when it was done has left it
            shutil.rmtree(folder / JOB, ignore_errors=True)
        index = Index.open(folder)
        check_encoder(folder, index.info, self.embedder.encoder)
        check_settings(index, self.info)
        return index

    def split(self, items: Iterator[Item]) -> Iterator[Item]:
        """The rows of the input, split where that is asked for."""
        return items if self.wanted.chunking is None else self.wanted.chunking.items(items, self.embedder)

    def identify(self, item: Item) -> str | None:
        """The id of an item's document: "" where it has none, None where ids are hashes."""
        from ..jobs.rows import as_text

        return None if self.wanted.id is None else as_text(item.kept.get(self.wanted.id)) or ""

    def locate(self, item: Item) -> Located:
        """Where an item stands in its document."""
        from ..search.rows import Located

        text, place = item.text or "", item.beside
        if place is None:
            return Located(0, 0, len(text), text)
        a, b = place.span
        start = b - len(place.text[a:b].lstrip())
        return Located(place.number, start, start + len(text), place.digest)

    def embedding(self, kinds: Mapping[str, Any]) -> Embedding:
        """How rows become vectors and columns."""
        from ..jobs.rows import Embedding, Item
        from ..search.write import columns_of

        chunking, embedder = self.wanted.chunking, self.embedder

        def encode(items: Sequence[Item], done: Progress) -> dict[str, Any]:
            if chunking is not None:
                chunks = [Item(item.line, item.text, None, item.beside.context) for item in items]
                return chunking.encode(chunks, embedder, done)
            return embedder([item.text or "" for item in items], None, done)

        return Embedding(encode, embedder.why_nan, lambda items: columns_of(items, kinds))


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
    from ..search.index import OWN, RESERVED

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
    from ..jobs.output import Rejects, check_some
    from ..jobs.rows import items_of, read_ahead
    from ..search.rows import NewRows
    from ..search.write import check_folder, writing

    check_folder(wanted.folder)
    with writing(wanted.folder):
        items = read_ahead(items_of(reader, None, None, wanted.columns))
        run = IndexRun(wanted)
        index = run.opened()
        kinds = {name: reader.kinds[name] for name in wanted.keep}
        items = run.split(items)
        if index is None:
            index, items = _begun(run, items, kinds)
        elif index.folder != wanted.folder and index.rows:
            say(f"{plural(index.rows, 'row')} done before")
        index.add_columns(kinds)
        rows = NewRows(run.info, run.identify, run.locate, kinds, index)
        with interruptible(lambda: "rows that were merged are kept; the same command goes on from there"):
            with Rejects(wanted.listing, say) as rejects, RowsBar(reader.total, wanted.progress) as bar:
                count = _embed(run, reader, items, rows, index, rejects, bar)
            if not index.rows:
                _discard(index, wanted.folder)
                check_some(rejects.count, rejects.count, wanted.listing)
            return finish(run, rows, index, count, rejects.count)


def _begun(run: IndexRun, items: Iterator[Item], kinds: Mapping[str, Any]) -> tuple[Index, Iterator[Item]]:
    """A new index, in the language of its first texts; and all rows."""
    from ..search.index import JOB
    from ..search.tune import SAMPLE, language_of
    from ..search.write import create

    first = list(islice(items, SAMPLE))
    if not first:
        raise DataError(f"the input is empty: {run.wanted.folder} is not made")
    language = run.info.language or language_of([item.text for item in first if item.text])
    index = create(run.wanted.folder / JOB, replace(run.info, language=language), kinds)
    return index, chain(first, items)


def _discard(index: Index, folder: Path) -> None:
    """Remove a first build without rows."""
    if index.folder != folder:
        shutil.rmtree(index.folder, ignore_errors=True)


def _embed(
    run: IndexRun, reader: Reader, items: Iterable[Item], rows: NewRows, index: Index, rejects: Rejects, bar: RowsBar
) -> int:
    """Embed the rows that the index does not have, and merge them; returns their number.

    Windows are cut by the input alone, so that a build that goes on has the vectors of an unbroken one.
    """
    from ..jobs.rows import Block, embed_window, windows
    from ..search.write import MERGED, Merges

    merges = Merges(index, min(MERGED, run.wanted.window))
    embedding, read, count = run.embedding(rows.columns), 0, 0
    empty = embedding.encode([], lambda _: None)
    for part in windows(items, run.wanted.window):
        new = [(number, found) for number, item in enumerate(part, read) if (found := rows.take(item)) is not None]
        read += len(part)
        if not new:
            bar.skip(reader.at, read)
            continue
        some = [item for _, item in new]
        bar.begin(reader.at, read, [len(item.text or "") for item in some if item.problem is None])
        vectors = embed_window(some, lambda part: embedding.encode(part, bar.more), embedding.why_nan, empty)
        for number, item in new:
            if item.problem is not None:
                rejects.add(number, item.line, item.problem)
        count += sum(item.problem is None for item in some)
        merges.add(Block(embedding.columns(some), vectors))
        bar.end()
    merges.flush()
    return count


def finish(run: IndexRun, rows: NewRows, index: Index, embedded: int, rejected: int) -> int:
    """Delete what is gone, make searches quick, and say what was done. Returns the exit code."""
    from ..search.rows import delete
    from ..search.write import publish

    rows.flush()
    stale = rows.stale(index, False)
    if run.wanted.prune:
        stale = _pruned(rows, index, stale)
    delete(index, stale)
    tune(run, index)
    index = publish(index, run.wanted.folder)
    say(summary(embedded, rows.counts, len(stale), index))
    if rejected:
        say(f"{rejected:,} rejected, listed in {run.wanted.listing}")
    return REJECTED if rejected else 0


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


def tune(run: IndexRun, index: Index) -> None:
    """Build the indexes of texts and vectors."""
    from ..search import tune as t

    tuning = run.wanted.tuning
    t.index_texts(index)
    t.index_vectors(index, tuning.kind, tuning.exact)
    t.optimize(index)
