"""Write vectors to the output of a command, with a progress bar and a last line on stderr."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ..errors import InputError, plural
from .console import REJECTED, interruptible, say
from .progress import RowsBar

if TYPE_CHECKING:
    from ..encoder import Encoder
    from ..files.lines import Reader
    from ..jobs.items import Item
    from ..jobs.output_file import Output
    from ..jobs.store import Store, Totals
    from ..jobs.vectors_info import VectorsInfo
    from ..jobs.windows import Embedding


def output_to(
    path: Path | None,
    rejects: Path | None,
    columns: dict[str, str],
    source: Path | None,
    vectors: int,
    *,
    model: str,
    settings: Mapping[str, Any],
    overwrite: bool = False,
) -> Output:
    """The output of a command, validated before a model is loaded.

    Args:
        path, rejects: the files; None or - is the standard output.
        columns: the type of each column beside the vectors.
        source: the input file.
        vectors: the number of vectors of each row.
        model: as the command names it.
        settings: what the rows of the output depend on, by the names of the options.
        overwrite: files that exist are replaced.

    Raises:
        typer.BadParameter: a file exists; two files are the same; an .npy file would need several vectors a row.
        DataError: the ending of the file's name is unknown, or its folder does not exist.
    """
    from ..jobs.output_file import Output
    from ..jobs.parts_folder import completed, remove_empty

    path, source = (None if str(p) == "-" else p for p in (path, source))
    output = Output(path, rejects, columns, source, overwrite, settings, model)
    try:
        output.check(vectors)
        if path is not None and completed(output) is None:
            output.check_new(remove_empty(output))
    except InputError as e:
        raise typer.BadParameter(str(e), param_hint="--output") from None
    return output


@contextmanager
def opened(output: Output) -> Iterator[Store]:
    """Where the windows of a run go: the parts of the output file, or the standard output.

    Raises:
        typer.Exit: an earlier run completed the output, and was then interrupted.
        Interrupted: by Ctrl-C or SIGTERM.
    """
    from ..jobs.parts_folder import open_parts
    from ..jobs.rejects import Rejects
    from ..jobs.store import StreamStore

    if output.path is None:
        with Rejects(output.listing, say) as rejects:
            stream = StreamStore(typer.get_binary_stream("stdout"), rejects)
            with interruptible(stream.kept):
                yield stream
        return
    with open_parts(output, say) as parts, interruptible(parts.kept):
        if parts.completed is not None:
            say(f"{output.path} was completed before: {counted(parts.completed)}")
            raise typer.Exit(REJECTED if parts.completed.rejected else 0)
        yield parts


def write_rows(
    reader: Reader,
    items: Iterable[Item],
    embedding: Embedding,
    store: Store,
    output: Output,
    infos: Mapping[str, VectorsInfo],
    encoder: Encoder,
    *,
    window: int,
    progress: bool | None = None,
) -> int:
    """Embed every row and write it; see `embed_rows`. Returns the exit code: 1 if a row was rejected."""
    from ..jobs.made_by import contract
    from ..jobs.windows import embed_rows

    before = store.begin(embedding.encode([], lambda _: None), infos, contract(infos, encoder))
    if before:
        say(f"{plural(before, 'row')} done before")
    with RowsBar(reader.total, progress) as bar:
        totals = embed_rows(reader, items, embedding, store, bar, window)
    totals.check(output.listing)
    if not totals.rows:
        say("warning: the input is empty")
    if output.path is not None or totals.rejected:
        say(summary(totals, before, output.listing, bar.seconds))
    return REJECTED if totals.rejected else 0


def summary(totals: Totals, before: int, listing: Path | None, seconds: float) -> str:
    """The last line of a run; the rate is that of the rows that this run embedded.

    >>> from afterword.jobs.store import Totals
    >>> summary(Totals(3, 0), 0, None, 1.0)
    '3 rows in 1.0 s (3 rows/s)'
    """
    rate = f"{(totals.rows - before) / max(seconds, 1e-9):.0f} rows/s"
    line = f"{counted(totals).partition(';')[0]} in {seconds:.1f} s ({rate})"
    where = f", listed in {listing}" if listing is not None else ""
    return f"{line}; {totals.rejected:,} rejected{where}" if totals.rejected else line


def counted(totals: Totals) -> str:
    """The number of rows, and of those without a vector.

    >>> from afterword.jobs.store import Totals
    >>> counted(Totals(1, 0)), counted(Totals(2000, 3))
    ('1 row', '2,000 rows; 3 rejected')
    """
    rows = plural(totals.rows, "row")
    return f"{rows}; {totals.rejected:,} rejected" if totals.rejected else rows
