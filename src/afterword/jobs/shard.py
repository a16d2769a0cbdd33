"""Embed one shard of a job and write its file."""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from ..encode.limits import Truncation
from ..encode.options import choose_prompt
from ..encoder import Encoder
from ..errors import DataError, JobError, TextsCut, TextsUnknown
from ..files.atomic import atomic_file
from ..files.fingerprint import fingerprint, identity, weights_digest
from ..methods import AnyMethod
from ..methods.serialize import to_json
from . import JOB, PROBLEM, ROW
from .job import REJECTED, Counts, Job, ShardRows, first_difference, part, parts_in, shards_of, spelled
from .output import ParquetSink
from .recipe import Recipe, Rows
from .rows import Array, Block, Inputs, Item, embed_window, windows
from .stored import VectorsInfo, probes, read_info, to_notes


def made_by(
    encoder: Encoder, methods: Mapping[str, AnyMethod], settings: Mapping[str, Any], model: str, probed: bool
) -> dict[str, VectorsInfo]:
    """What each column of vectors is made by.

    Args:
        encoder: the encoder.
        methods: the method of each column.
        settings: the options of `Encoder.encode`.
        model: the model, as the command names it.
        probed: whether probe vectors are computed, which .parquet files store.

    Raises:
        InputError: no prompt has the name that the settings give.
    """
    prompt = choose_prompt(
        encoder.prompts, encoder.default_prompt_name, settings.get("prompt"), settings.get("prompt_name")
    )
    weights, infos = weights_digest(encoder.backbone.model), {}
    for column, method in methods.items():
        one = replace(encoder, method=method)
        infos[column] = VectorsInfo(
            model=model,
            method=to_json(method),
            fingerprint=fingerprint(one, weights),
            identity=identity(one, weights),
            dimension=settings.get("truncate_dim") or one.dimension,
            normalized=bool(settings.get("normalize_embeddings")),
            prompt=prompt or None,
            probes=probes(one) if probed else None,
        )
    return infos


@contextmanager
def counted_losses() -> Iterator[Truncation]:
    """Note what encode would warn of: the tokens that each cut text loses, the number of texts that are unknown."""
    losses = Truncation()
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


TOLERANCE = 1e-5
"""The largest difference of a component, as a share of the shard's largest one."""


def verify(job: Job, worker: ShardWorker, count: int, seed: int = 0) -> tuple[list[int], list[int]]:
    """Embed some finished shards again, and compare them within `TOLERANCE`.

    Args:
        job: the job; its files are not touched.
        worker: what its shards were embedded by.
        count: how many shards, drawn at random.
        seed: of the draw.

    Returns:
        The numbers of the shards that were embedded again, and of those among them that differ.

    Raises:
        JobError: the encoder or the input differs.
    """
    import pyarrow.parquet as pq

    done = list(parts_in(job.folder))
    numbers = sorted(Random(seed).sample(done, min(count, len(done))))
    if not numbers:
        return [], []
    embed = worker.start()
    fresh = {number: pq.read_table(io.BytesIO(embed.content(number)[0])) for number in numbers}
    return numbers, [n for n in numbers if not _alike(pq.read_table(part(job.folder, n)), fresh[n])]


def _alike(before: Any, now: Any) -> bool:
    vectors = [field.name for field in now.schema if hasattr(field.type, "list_size")]
    if before.schema.names != now.schema.names or not before.drop(vectors).equals(now.drop(vectors)):
        return False
    for name in vectors:
        a, b = (table[name].combine_chunks() for table in (before, now))
        if not a.is_valid().equals(b.is_valid()) or a.type != b.type:
            return False
        x, y = (column.drop_null().flatten().to_numpy(zero_copy_only=False) for column in (a, b))
        if not np.allclose(x, y, rtol=0, atol=TOLERANCE * np.abs(y).max(initial=0)):
            return False
    return True
