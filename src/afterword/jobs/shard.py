"""One shard of a job: its rows are embedded, and its file appears under its name when it is complete."""

from __future__ import annotations

import io
import json
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..encode.limits import Losses
from ..errors import DataError, JobError, TextsCut, TextsUnknown
from ..files.atomic import atomic_file
from .items import Item
from .made_by import first_difference, made_by, spelled
from .names import JOB, PROBLEM, ROW
from .plan import Inputs, ShardRows, shards_of
from .recipe import Recipe, Rows
from .vectors_info import PREFIX, UNKNOWN, VectorsInfo, read_info, to_notes
from .windows import embed_window, windows
from .write_vectors import Array, Block, ParquetSink

SHARDS = "shards"
REJECTED = f"{PREFIX}rejected"
NAME = re.compile(r"[0-9]{6,}\.parquet")

Counts = dict[str, int]
"""Of a shard: its rows, those rejected, its cut texts and the tokens they lost, its texts mostly unknown."""


def part(folder: Path, number: int) -> Path:
    """The file of a shard; the shard is done if and only if it exists."""
    return folder / SHARDS / f"{number:06}.parquet"


def parts_in(folder: Path) -> dict[int, Path]:
    """The files of the finished shards of a job, by their numbers in ascending order."""
    found = [path for path in (folder / SHARDS).glob("*.parquet") if NAME.fullmatch(path.name)]
    return {int(path.stem): path for path in sorted(found, key=lambda path: int(path.stem))}


def counts_of(path: Path) -> Counts:
    """The numbers of rejected and of mostly unknown texts of a finished shard."""
    import pyarrow.parquet as pq

    notes = pq.read_schema(path).metadata or {}
    return {"rejected": int(notes.get(REJECTED.encode(), 0)), "unknown": int(notes.get(UNKNOWN.encode(), 0))}


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


@dataclass(frozen=True)
class ShardWorker:
    """What a process needs to embed shards; it can be pickled.

    Args:
        folder: of the job.
        inputs: its files.
        recipe: how texts become vectors.
        columns: the type of each column besides the vectors and the row's number, by the field of the input.
        model: the model, as the command names it.
        window: the most rows that are sorted by length together.
        id: the field whose values the column "id" holds.
        row, problem: the columns of the row's number (None = no such column), and of why a row has no vector.
    """

    folder: Path
    inputs: Inputs
    recipe: Recipe
    columns: Mapping[str, Any]
    model: str
    window: int
    id: str | None = None
    row: str | None = ROW
    problem: str = PROBLEM

    def start(self, report: Callable[[float], None] = lambda _: None) -> ShardEmbedder:
        """Load the encoder.

        Args:
            report: called with the number of rows that were embedded since its last call.

        Raises:
            JobError: the encoder is not the one that made the finished shards.
        """
        rows = self.recipe.open()
        embedder = rows.embedder
        infos = made_by(embedder.encoder, embedder.methods, self.recipe.options, self.model, True)
        for path in list(parts_in(self.folder).values())[:1]:
            check_made_by(self.folder, read_info(path), infos)
        return ShardEmbedder(self, rows, infos, report)


def check_made_by(folder: Path, before: Mapping[str, VectorsInfo], now: Mapping[str, VectorsInfo]) -> None:
    """Raise a JobError if finished shards were made by a different model, method or setting."""
    names = ("method", "identity", "prompt", "normalized", "dimension")
    old, new = ({c: {n: getattr(i, n) for n in names} for c, i in infos.items()} for infos in (before, now))
    found = first_difference(old, new)
    if found is None:
        return
    models = [next(iter(infos.values())).model for infos in (before, now)]
    name, was, is_now = ("model", *models) if "identity" in found[0] and models[0] != models[1] else found
    raise JobError(
        f"{folder} was begun with {name} {spelled(was)}, and now it is {spelled(is_now)}: give the same command, or "
        "--overwrite to start again"
    )


class ShardEmbedder:
    """Embed the shards of a job in this process."""

    def __init__(
        self, worker: ShardWorker, rows: Rows, infos: Mapping[str, VectorsInfo], report: Callable[[float], None]
    ) -> None:
        self.worker, self.rows, self.infos, self.report = worker, rows, infos, report
        self.plan = shards_of(json.loads((worker.folder / JOB).read_bytes())["plan"])
        self.read, self.empty = ShardRows(worker.inputs), rows.encode([], lambda _: None)

    def __call__(self, number: int) -> Counts:
        """Embed a shard and write its file.

        Raises:
            JobError: the disk is full, or the input has become shorter.
        """
        content, counts = self.content(number)
        try:
            with atomic_file(part(self.worker.folder, number)) as file:
                file.write(content)
        except DataError as e:
            raise JobError(f"{e}; finished shards are kept, and the same command goes on") from None
        return counts

    def content(self, number: int) -> tuple[bytes, Counts]:
        """Embed a shard, and return what its file holds."""
        import pyarrow as pa

        shard, worker, kinds = self.plan[number], self.worker, dict(self.worker.columns)
        names = {name: "id" if name == worker.id else name for name in kinds}
        items = self.read.of(shard)
        row_of = {item.line: shard.row + i for i, item in enumerate(items)}
        embedding, blocks, rejected, reported = self.rows.embedding(kinds, True), list[Block](), 0, 0.0
        with counted_losses() as losses:
            for some in windows(self.rows.split(iter(items)), worker.window):

                def more(rows: float, some: list[Any] = some) -> None:
                    nonlocal reported
                    rows *= min(1, shard.rows / len(some))  # of chunks, a share of their text
                    reported += rows
                    self.report(rows)

                def encode(part: Sequence[Item], more: Callable[[float], None] = more) -> dict[str, Array]:
                    return embedding.encode(part, more)

                vectors = embed_window(some, encode, embedding.why_nan, self.empty)
                values = {names[name]: column for name, column in embedding.columns(some).items() if name in names}
                problems = [None if i.problem is None else {"line": i.line, "reason": i.problem} for i in some]
                rejected += sum(problem is not None for problem in problems)
                numbers = {} if worker.row is None else {worker.row: [row_of[i.line] for i in some]}
                blocks.append(Block({**numbers, **values, worker.problem: problems}, vectors))
        self.report(shard.rows - reported)  # rows without a text, and those that were tried twice
        columns: dict[str, Any] = {} if worker.row is None else {worker.row: "number"}
        columns |= {names[name]: kind for name, kind in kinds.items()}
        columns[worker.problem] = pa.struct([("line", pa.int64()), ("reason", pa.string())])
        notes = to_notes(self.infos, losses.unknown) | ({REJECTED: str(rejected)} if rejected else {})
        with io.BytesIO() as file:
            with ParquetSink(file, columns, self.empty, notes) as sink:
                for block in blocks:
                    sink.write(block)
            counts = {"rows": shard.rows, "rejected": rejected, "unknown": losses.unknown}
            return file.getvalue(), {**counts, "cut": len(losses.lost), "lost": sum(losses.lost)}
