"""Write vectors to the output of a command, with a progress bar and a last line on stderr."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import typer

from ..errors import DataError, InputError
from .console import REJECTED, say
from .progress import RowsBar

if TYPE_CHECKING:
    from ..files.lines import Reader
    from ..files.vectors_info import VectorsInfo
    from ..files.write_vectors import Array
    from ..jobs.items import Item
    from ..jobs.output_file import Output
    from ..jobs.rejects import Rejects


def output_to(
    path: Path | None, rejects: Path | None, columns: dict[str, str], source: Path | None, vectors: int
) -> Output:
    """The output of a command, validated before a model is loaded.

    Raises:
        typer.BadParameter: the input would be overwritten, or an .npy file would need several vectors a row.
        DataError: the ending of the file's name is of no known format.
    """
    from ..jobs.output_file import Output

    output = Output(path if str(path) != "-" else None, rejects, columns)
    try:
        output.check(source, vectors)
    except InputError as e:
        raise typer.BadParameter(str(e), param_hint="--output") from None
    return output


def opened(output: Output) -> Any:
    """The open output file, or the standard output."""
    return output.opened(typer.get_binary_stream("stdout"))


def write_rows(
    reader: Reader,
    items: Iterable[Item],
    encode: Callable[[Sequence[Item], Callable[[float], None]], dict[str, Array]],
    why_nan: Callable[[str], str],
    columns: Callable[[Sequence[Item]], dict[str, list[Any]]],
    output: Output,
    file: BinaryIO,
    infos: Mapping[str, VectorsInfo],
    *,
    window: int,
    progress: bool | None = None,
) -> int:
    """Embed every row and write it; see `embed_rows`. Returns the exit code: 1 if a row was rejected."""
    from ..jobs.rejects import Rejects
    from ..jobs.windows import embed_rows

    with ExitStack() as stack:
        rejects = stack.enter_context(Rejects(output.listing, say))
        bar = stack.enter_context(RowsBar(reader.total, progress))
        rows = embed_rows(
            reader, items, encode, why_nan, columns, lambda empty: output.sink(file, empty, infos), rejects, bar, window
        )
    if not rows:
        say("warning: the input is empty")
    elif rejects.count == rows:
        listed = "" if rejects.path is None else f", as {rejects.path} lists"
        raise DataError(f"no row could be embedded: {rows} of {rows} rejected{listed}")
    if output.path is not None or rejects.count:
        say(summary(rows, rejects, bar.seconds))
    return REJECTED if rejects.count else 0


def summary(rows: int, rejects: Rejects, seconds: float) -> str:
    """The last line of a run.

    >>> from afterword.jobs.rejects import Rejects
    >>> summary(3, Rejects(None), 1.0)
    '3 rows in 1.0 s (3/s)'
    """
    line = f"{rows} rows in {seconds:.1f} s ({rows / max(seconds, 1e-9):.0f}/s)"
    if not rejects.count:
        return line
    where = f", listed in {rejects.path}" if rejects.path is not None else ""
    return f"{line}; {rejects.count} rejected{where}"
