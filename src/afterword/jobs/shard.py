"""One shard of a job: its rows are embedded, and written so that the first whole file wins.

Every file is written beside its place, and linked to its name once it is on disk; a name is never taken twice. A shard
counts only with its marker. So it does no harm if two processes embed the same shard: their files are equal, or the
first one stays.
"""

from __future__ import annotations

import json
import os
import socket
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any, BinaryIO

from ..encode.limits import Losses
from ..errors import DataError, JobError, TextsCut, TextsUnknown
from ..files.atomic import FULL, sync
from .contract import Contract, check_made_by, plain, read
from .embedder import MethodsEmbedder
from .items import Item
from .made_by import contract, made_by
from .parts_folder import checksum
from .plan import Inputs, Shard, ShardRows, read_plan
from .recipe import JobRecipe, TextRows
from .rejects import reject_line
from .vectors_info import VectorsInfo, to_notes
from .windows import embed_window, windows
from .write_vectors import Array, Block, ParquetSink

PLAN, MADE_BY = "plan.jsonl", "made_by.json"
SHARDS, REJECTS, DONE, TMP = FOLDERS = ("shards", "rejects", "done", "tmp")
ROW = "row"


def part(folder: Path, number: int) -> Path:
    """The vectors of a shard."""
    return folder / SHARDS / f"{number:06}.parquet"


def listing(folder: Path, number: int) -> Path:
    """The rows of a shard without a vector; there is no such file if all have one."""
    return folder / REJECTS / f"{number:06}.jsonl"


def marker(folder: Path, number: int) -> Path:
    """The file that says that a shard is done."""
    return folder / DONE / f"{number:06}.json"


def read_marker(path: Path) -> Contract | None:
    """What the marker of a shard says; None if there is none, or if it is damaged."""
    found = read(path) or {}
    rows, rejected = found.get("rows"), found.get("rejected")
    counted = type(rows) is int and type(rejected) is int and 0 <= rejected <= rows
    return found if counted and isinstance(found.get("part"), str) and "listing" in found else None


@contextmanager
def published(path: Path, tmp: Path) -> Iterator[BinaryIO]:
    """Write a file that gets its name when it is whole and on disk; a file that has the name already stays.

    Args:
        path: the file.
        tmp: the folder in which it is written, on the same file system.

    Raises:
        JobError: the disk is full.
    """
    written = tmp / f"{path.name}.{socket.gethostname()}.{os.getpid()}.{token_hex(4)}"
    try:
        with written.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(written, path)
        except FileExistsError:
            pass
        except OSError:  # no hard links here
            if not path.exists():
                written.rename(path)
        sync(path.parent)
    except OSError as e:
        if e.errno in FULL:
            raise JobError(
                f"{path} cannot be written: {os.strerror(e.errno)}; finished shards are kept, and the same command "
                "goes on from there"
            ) from e
        raise
    finally:
        with suppress(OSError):
            written.unlink(missing_ok=True)


def publish(path: Path, tmp: Path, content: bytes) -> None:
    """Write a file as a whole; see `published`."""
    with published(path, tmp) as file:
        file.write(content)


@contextmanager
def counted_losses() -> Iterator[Losses]:
    """Note what encode would warn of: the tokens that each cut text loses, the number of texts that are unknown."""
    losses = Losses()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always", TextsCut)
        warnings.simplefilter("always", TextsUnknown)
        yield losses
    for warning in seen:
        if isinstance(warning.message, TextsCut):
            losses.lost.extend(warning.message.lost)
        elif isinstance(warning.message, TextsUnknown):
            losses.unknown += warning.message.number
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)


@contextmanager
def as_job_error() -> Iterator[None]:
    """Raise a `JobError` in place of a `DataError`."""
    try:
        yield
    except DataError as e:
        raise JobError(str(e)) from None


@dataclass(frozen=True)
class ShardWorker:
    """What embeds shards in a process of its own; it can be pickled.

    Args:
        folder: of the job.
        inputs: its files.
        recipe: how texts become vectors.
        columns: the type of each column beside the vectors and the row's number, by the field of the input.
        model: the model, as the command names it.
        window: the most rows that are sorted by length together.
        id: the field whose values the column "id" holds.
    """

    folder: Path
    inputs: Inputs
    recipe: JobRecipe
    columns: Mapping[str, Any]
    model: str
    window: int
    id: str | None = None

    def start(self) -> Callable[[int], Contract]:
        """Load the encoder, and return what embeds the shard of a number, and gives what its marker says.

        Raises:
            JobError: the encoder is not the one that the job was begun with.
        """
        rows = self.recipe.open()
        return _Embedding(self, rows, self._agree(rows.embedder)).shard

    def _agree(self, embedder: MethodsEmbedder) -> dict[str, VectorsInfo]:
        """What vectors are made by: the first process of a job writes it down, and the others do as it does.

        Raises:
            JobError: the encoder, a setting or a version differs; the first difference is named.
        """
        path = self.folder / MADE_BY
        infos, now = self._made_by(embedder)
        publish(path, self.folder / TMP, json.dumps(now, indent=1).encode())
        before = read(path)
        if before is None:
            raise JobError(f"{path} is damaged, so that it is not known how the shards were made: --overwrite")
        if before.get("identity") == now["identity"]:  # the same weights under another path
            before = {**before, "--model": self.model}
        with as_job_error():
            check_made_by(self.folder, before, now)
        return infos

    def _made_by(self, embedder: MethodsEmbedder) -> tuple[dict[str, VectorsInfo], Contract]:
        infos = made_by(embedder.encoder, embedder.methods, self.recipe.options, self.model, True)
        return infos, plain({"--model": self.model, **contract(infos, embedder.encoder, "--threads")})


class _Embedding:
    """Embeds the shards of a job in one process."""

    def __init__(self, worker: ShardWorker, rows: TextRows, infos: Mapping[str, VectorsInfo]) -> None:
        self.worker, self.rows, self.notes = worker, rows, to_notes(infos)
        self.plan, self.read = read_plan(worker.folder / PLAN), ShardRows(worker.inputs)
        self.empty = rows.encode([], lambda _: None)

    def shard(self, number: int) -> Contract:
        """Embed a shard and write it, unless it is done."""
        folder, shard = self.worker.folder, self.plan[number]
        before = read_marker(marker(folder, number))
        if before is not None:
            return before
        began = time.perf_counter()
        items = self.read.of(shard)
        with counted_losses() as losses:
            rejected = self.write(shard, items)
        if rejected:
            publish(listing(folder, number), folder / TMP, b"".join(rejected))
        done = {
            "rows": shard.rows, "rejected": len(rejected), "part": checksum(part(folder, number)),
            "listing": checksum(listing(folder, number)) if rejected else None,
            "cut": len(losses.lost), "lost": sum(losses.lost), "unknown": losses.unknown,
            "seconds": round(time.perf_counter() - began, 3), "host": socket.gethostname(),
        }  # fmt: skip
        publish(marker(folder, number), folder / TMP, json.dumps(done, indent=1).encode())
        return done

    def encode(self, items: Sequence[Item]) -> dict[str, Array]:
        """The vectors (n, D) of rows, by name."""
        return self.rows.encode(items, lambda _: None)

    def write(self, shard: Shard, items: list[Item]) -> list[bytes]:
        """Embed and write the rows of a shard; the lines of the list of those without a vector."""
        worker, kinds = self.worker, dict(self.worker.columns)
        names = {name: "id" if name == worker.id else name for name in kinds}
        embedding, rejected = self.rows.embedding(kinds, True), list[bytes]()
        row_of = {item.line: shard.row + i for i, item in enumerate(items)}
        columns = {ROW: "number", **{names[name]: kind for name, kind in kinds.items()}}
        with (
            published(part(worker.folder, shard.number), worker.folder / TMP) as file,
            ParquetSink(file, columns, self.empty, self.notes) as sink,
        ):
            for some in windows(self.rows.split(iter(items)), worker.window):
                vectors = embed_window(
                    some, lambda part: embedding.encode(part, lambda _: None), embedding.why_nan, self.empty
                )
                rejected += [reject_line(row_of[i.line], i.line, i.problem) for i in some if i.problem is not None]
                values = {names[name]: column for name, column in embedding.columns(some).items() if name in names}
                sink.write(Block({ROW: [row_of[i.line] for i in some], **values}, vectors))
        return rejected
