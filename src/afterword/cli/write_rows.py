"""Write the rows of a command to its output, with a progress bar and a last line on stderr."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ..errors import InputError, plural
from .console import REJECTED, interruptible, say
from .embed_folder import JobBar
from .inputs import stdin_bytes
from .progress import RowsBar, say_loading

if TYPE_CHECKING:
    from ..encoder import Encoder
    from ..files.lines import Reader
    from ..jobs.output import OutputFile
    from ..jobs.recipe import Recipe
    from ..jobs.rows import Embedding, Inputs, Item


def output_to(
    path: Path | None, rejects: Path | None, source: Path | None, vectors: int, kept: bool, overwrite: bool
) -> OutputFile | None:
    """The output file of a command, validated before a model is loaded; None = the standard output.

    Args:
        path, rejects: the files; None or - is the standard output.
        source: the input file.
        vectors: the number of vectors of each row.
        kept: whether columns of the input are kept.
        overwrite: whether files that exist are replaced.

    Raises:
        typer.BadParameter: a file exists; two files are the same; an .npy file cannot hold the rows.
        DataError: the ending of the file's name is unknown, or its folder does not exist.
    """
    from ..jobs.output import OutputFile, check_files, kind_of

    path, source = (None if str(p) == "-" else p for p in (path, source))
    output = None if path is None else OutputFile(path, rejects, overwrite)
    if kind_of(path) == "npy" and kept:
        raise typer.BadParameter("an .npy file holds vectors only: write .jsonl or .parquet", param_hint="--keep")
    if kind_of(path) == "npy" and vectors > 1:
        said = f"an .npy file holds one vector a row, and {vectors} methods are given: write .jsonl or .parquet"
        raise typer.BadParameter(said, param_hint="--output")
    try:
        check_files(path, rejects if output is None else output.listing, source, overwrite)
    except InputError as e:
        raise typer.BadParameter(str(e), param_hint="--output") from None
    return output


def write_stream(
    reader: Reader,
    items: Iterable[Item],
    embedding: Embedding,
    listing: Path | None,
    *,
    window: int,
    progress: bool | None,
) -> int:
    """Embed every row, and write it to the standard output at once. Returns the exit code: 1 if a row was rejected."""
    from ..jobs.output import JsonLinesSink, Rejects, check_some
    from ..jobs.rows import stream_rows

    sink, rows = JsonLinesSink(typer.get_binary_stream("stdout")), 0

    def kept() -> str:
        return f"{plural(rows, 'row')} written to the standard output; with --output FILE, a run can be continued"

    with Rejects(listing, say) as rejects, interruptible(kept), RowsBar(reader.total, progress) as bar:
        for some, block in stream_rows(reader, items, embedding, bar, window):
            for row, item in enumerate(some, rows):
                if item.problem is not None:
                    rejects.add(row, item.line, item.problem)
            sink.write(block)
            rows += len(some)
    check_some(rows, rejects.count, listing)
    if not rows:
        say("warning: the input is empty")
    if rejects.count:
        say(summary(rows, rejects.count, rows, listing, bar.seconds))
    return REJECTED if rejects.count else 0


def source_of(folder: Path, texts: Reader | None, path: Path | None, kind: str | None) -> tuple[Path, str | None, bool]:
    """The input as a file that can be read again: the file, its format, and whether it was copied.

    Args:
        folder: that the standard input, a pipe or the texts of the command line are copied to.
        texts: those of the command line.
        path: the input file; None or - is the standard input.
        kind: its format.
    """
    from ..files.read import FORMATS, format_of
    from ..jobs.output import spool

    if texts is not None:
        return spool(folder, texts), "jsonl", True
    if path is None or str(path) == "-":
        return spool(folder, stdin_bytes()), kind or "txt", True
    kind = kind or (format_of(path) if format_of(path) in FORMATS else None)
    if path.exists() and not path.is_file() and not path.is_dir() and kind is not None:  # a pipe
        with path.open("rb") as pipe:
            return spool(folder, pipe), kind, True
    return path, kind, False


def write_file(
    output: OutputFile,
    inputs_of: Callable[[Path], Inputs],
    recipe: Recipe,
    columns: Mapping[str, Any],
    settings: Mapping[str, Any],
    model: str,
    *,
    window: int,
    progress: bool | None,
    note: str = "",
    save: Callable[[Encoder], object] | None = None,
) -> int:
    """Embed every row by a job, and join its shards. Returns the exit code: 1 if a row was rejected.

    Args:
        output: the file.
        inputs_of: opens the input, given a folder for a copy of what can be read once only.
        recipe: how the rows become vectors.
        columns: the type of each column besides the vectors and the kept ones.
        settings: what the rows depend on, by the names of the options.
        model: as the command names it.
        window: the most rows that are sorted by length together.
        progress: whether progress is shown.
        note: said when the model is loaded.
        save: saves the encoder at the end.
    """
    from ..jobs.job import Job
    from ..jobs.output import HIDDEN_PROBLEM, finish, kept_in, kind_of, opened_folder
    from ..jobs.rows import SHARD_ROWS
    from ..jobs.run import run_job
    from ..jobs.shard import ShardEmbedder, ShardWorker

    with opened_folder(output) as folder, interruptible(lambda: kept_in(folder)):
        inputs, began = inputs_of(folder), time.perf_counter()
        kinds = {**columns, **inputs.kinds(say)}
        if kind_of(output.path) == "jsonl":
            kinds = {name: "exact" if kind == "json" else kind for name, kind in kinds.items()}
        worker = ShardWorker(folder, inputs, recipe, kinds, model, window, row=None, problem=HIDDEN_PROBLEM)
        job = Job.create(worker, settings, min(window, SHARD_ROWS), overwrite=output.overwrite)
        bar, embedders = JobBar(folder, None, progress), list[ShardEmbedder]()

        def run(_: object, numbers: Any, listener: Any) -> None:
            nonlocal began
            if numbers or save is not None:
                say_loading(model, progress)
                embedders.append(worker.start(listener.more))
                if note:
                    say(note)
            began = time.perf_counter()
            for number in numbers:
                listener.done(number, embedders[0](number))

        try:
            result = run_job(job, worker, run, bar)
        finally:
            bar.end()
        rows = finish(job, output, kinds)
    if not rows:
        say("warning: the input is empty")
    say(summary(rows, result.rejected, result.rows - bar.before, output.listing, time.perf_counter() - began))
    if save is not None:
        save(embedders[0].rows.embedder.encoder)
    return REJECTED if result.rejected else 0


def summary(rows: int, rejected: int, new: int, listing: Path | None, seconds: float) -> str:
    """The last line of a run; the rate is that of the rows that this run embedded.

    >>> summary(3, 0, 3, None, 1.0), summary(2000, 3, 500, Path("bad.jsonl"), 10.0)
    ('3 rows in 1.0 s (3 rows/s)', '2,000 rows in 10.0 s (50 rows/s); 3 rejected, listed in bad.jsonl')
    """
    line = f"{plural(rows, 'row')} in {seconds:.1f} s ({new / max(seconds, 1e-9):.0f} rows/s)"
    where = f", listed in {listing}" if listing is not None else ""
    return f"{line}; {rejected:,} rejected{where}" if rejected else line
