"""An output file by a job: a hidden folder next to it, whose shards are joined at the end.

::

    .OUTPUT.job/job.json, shards/    as `job` has them
    .OUTPUT.job/input                what came from the standard input, or from the command line
    .OUTPUT.job/joined               the rows of all shards, which then get the output's name

The folder is removed when the output is there. A run that was killed goes on by the same command.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from ..errors import DataError, plural
from ..files.atomic import atomic_file
from ..files.lines import Reader
from .job import INPUT, JOINED, LOCK, TEMPORARY, Job, locked
from .join import write_rows
from .names import JOB
from .output_path import OutputFile, same
from .rejects import check_some, forget
from .shard import SHARDS, parts_in
from .write_vectors import kind_of

PROBLEM = "afterword.problem"
"""The column of the hidden shards that says why a row has no vector: kept columns may have any plain name."""


@contextmanager
def opened_folder(output: OutputFile) -> Iterator[Path]:
    """Hold the hidden folder of an output; it is removed if no shard is finished at the end.

    Raises:
        DataError: another process writes the output.
    """
    folder = output.folder
    folder.mkdir(exist_ok=True)
    with locked(folder):
        if (folder / JOINED).exists() and output.file.exists() and same(folder / JOINED, output.file):
            remove(folder)  # killed when the output was complete
            folder.mkdir(exist_ok=True)
        try:
            yield folder
        finally:
            if not parts_in(folder):
                remove(folder)


def kept_in(folder: Path) -> str:
    """What is kept if a run ends now, and how it goes on."""
    parts = parts_in(folder)
    if not parts:
        return "no row was finished, and nothing is kept"
    rows = sum(Job.open(folder).plan[number].rows for number in parts)
    return f"{plural(rows, 'row')} kept in {folder}; the same command goes on from there"


def remove(folder: Path) -> None:
    """Remove what a job has written in its hidden folder: shards first, so that none outlives its job.json."""
    for path in [*(folder / SHARDS).glob("*.parquet"), *(folder / SHARDS).glob(TEMPORARY), *folder.glob(TEMPORARY)]:
        path.unlink(missing_ok=True)
    with suppress(OSError):
        (folder / SHARDS).rmdir()
    for name in (JOB, INPUT, JOINED, LOCK):
        (folder / name).unlink(missing_ok=True)
    with suppress(OSError):  # it holds files of others
        folder.rmdir()


def spool(folder: Path, source: BinaryIO | Reader) -> Path:
    """Write what can be read once only to a file in the hidden folder: a stream, or the texts of a command line."""
    with atomic_file(folder / INPUT) as file:
        if isinstance(source, Reader):
            file.writelines(json.dumps(record.fields).encode() + b"\n" for record in source)
        else:
            shutil.copyfileobj(source, file)
    return folder / INPUT


def finish(job: Job, output: OutputFile, columns: Mapping[str, Any]) -> int:
    """Join the shards, give the output its name, and remove the hidden folder.

    Args:
        job: with all its shards.
        output: the file.
        columns: the type of each column besides the vectors.

    Returns:
        The number of rows of the output, which are chunks where texts are split.

    Raises:
        DataError: no row has a vector, and nothing is written; the disk is full; or the name has been taken.
    """
    exact = [name for name, kind in columns.items() if kind == "exact"]
    joined, listed = job.folder / JOINED, list[bytes]()
    try:
        with atomic_file(joined) as file:
            rows = write_rows(job, file, kind_of(output.path), PROBLEM, exact, listed.append)
    except DataError as e:
        raise DataError(f"{e}; {kept_in(job.folder)}") from None
    _list(output, listed)
    try:
        check_some(rows, len(listed), output.listing)
    except DataError:
        remove(job.folder)
        raise
    _name(joined, output)
    remove(job.folder)
    return rows


def _list(output: OutputFile, listed: Iterable[bytes]) -> None:
    lines = list(listed)
    if lines:
        with atomic_file(output.listing) as file:
            file.writelines(lines)
    elif output.rejects is None:
        forget(output.listing)


def _name(joined: Path, output: OutputFile) -> None:
    """Give the joined file its name; without --overwrite, never that of a file that has appeared since."""
    if not output.overwrite:
        try:
            os.link(joined, output.file)
            return
        except OSError:  # the name is taken, or the file system has no hard links
            if output.file.exists():
                raise DataError(
                    f"{output.path} has appeared since this run began: move it away, or --overwrite; the same command "
                    "goes on"
                ) from None
    joined.replace(output.file)
