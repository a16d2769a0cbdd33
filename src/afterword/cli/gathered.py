"""The texts and vectors that ``duplicates`` and ``cluster`` compare: stored by ``embed``, or embedded now."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ..errors import DataError, plural
from .console import say
from .inputs import open_reader
from .model import ModelChoice, read_methods
from .similar_stored import stored_at, unknown_in
from .similar_texts import embed_side, read_items, summary

if TYPE_CHECKING:
    from ..files.lines import FileForm
    from ..jobs.rows import Array

ENDINGS = (".jsonl", ".csv", ".parquet")


@dataclass(frozen=True)
class Gathered:
    """The m different texts of an input that have a vector.

    Attributes:
        vectors: (m, D).
        lines: for each text, the rows of the input that hold it, counted from 1; of a file of texts, its lines.
        texts: the texts of some of them, by their numbers in ascending order.
        missing: the number of rows without a vector.
        rejected: whether these rows were rejected now.
        notes: lines on them.
        stored: whether the vectors were stored, so that rows have no lines.
        ids: the rows' ids, where the input is an index.
        kept: the columns that were kept beside the texts, as Arrow has them, of rows in ascending order from 1.
    """

    vectors: Array
    lines: Sequence[Sequence[int]]
    texts: Callable[[Sequence[int]], list[str]]
    missing: int
    rejected: bool
    notes: Sequence[str] = ()
    stored: bool = False
    ids: Sequence[str] | None = None
    kept: Callable[[Sequence[int]], Mapping[str, Any]] = lambda _: {}

    def listed(self, lines: Sequence[int], **columns: Sequence[Any]) -> dict[str, Any]:
        """The columns of a list of rows: their names, these, and what was kept, as kept_NAME where NAME is taken."""
        own = {self.key: [*map(self.named, lines)], **columns}
        return {**own, **{f"kept_{n}" if n in own else n: values for n, values in self.kept(lines).items()}}

    @property
    def key(self) -> str:
        """What names a row in a list: its line in a file of texts, its number from 0, or in an index its id."""
        return "id" if self.ids is not None else "row" if self.stored else "line"

    def named(self, line: int) -> int | str:
        """A row's line, number or id."""
        return self.ids[line - 1] if self.ids is not None else line - self.stored

    @property
    def rows(self) -> int:
        """The number of rows with a vector."""
        return sum(map(len, self.lines))


def gather(
    path: Path | None,
    choice: ModelChoice | None,
    method: str | None,
    settings: Mapping[str, Any],
    field: str | None,
    kind: str | None,
    form: FileForm,
) -> Gathered:
    """Read stored vectors, or read texts and embed them.

    Args:
        path: a .parquet file that `embed` wrote, the folder of a job, an index, or a file of texts; None = texts of the
            standard input.
        choice: the model for texts; None = none was given.
        method: the method for texts, or the column of a file with the vectors of several methods.
        settings: options of `Encoder.encode`, None where one was not given.
        field: the column of the texts; with it, a file of vectors is read as one of texts.
        kind: the format of a file of texts.
        form: how it is written.

    Raises:
        typer.BadParameter: texts without a model, vectors with one, or an unclear column.
        DataError: the file cannot be read.
    """
    from ..files.read import check_file
    from ..jobs.stored import holds_vectors

    if path is not None and str(path) != "-" and not path.exists():
        check_file(path)
    if path is not None and ((field is None and holds_vectors(path)) or path.is_dir()):
        index = path.is_dir() and not holds_vectors(path)
        if choice is not None:
            raise typer.BadParameter(f"{path} holds vectors, which are taken as they are: leave it out, or name the "
                                     "column of the texts by --column to embed them", param_hint="--model")  # fmt: skip
        if index and (method or field):
            raise typer.BadParameter(
                f"{path} is an index, which has one vector for each text",
                param_hint="--method" if method else "--column",
            )
        return _indexed(path) if index else _stored(path, method)
    if choice is None:
        where = "the standard input" if path is None else str(path)
        raise typer.BadParameter(
            f"{where} holds no vectors: give a model for its texts, or a .parquet file that `afterword embed` wrote",
            param_hint="--model",
        )
    with closing(open_reader(None, path, kind, field, form=form)) as reader:
        items = read_items(reader, hint="--input")
    from ..jobs.recipe import MethodsEmbedder

    embedder = MethodsEmbedder.open(choice, read_methods([method] if method else None), dict(settings))
    side = embed_side(items, embedder, True)
    (vectors,) = side.vectors.values()
    missing = len(side.rejected)
    return Gathered(
        vectors, side.lines, lambda rows: [side.texts[i] for i in rows], missing, missing > 0, summary(side, path)
    )


def _stored(path: Path, method: str | None) -> Gathered:
    """The vectors of a file or a job, each text once."""
    import numpy as np

    from ..files.lines import TEXT

    file = stored_at(path)
    column = next(iter(file.infos)) if method is None and len(file.infos) == 1 else method
    if column is None or column not in file.infos:
        names = ", ".join(file.infos)
        wrong = "which vectors?" if column is None else f"no vectors of {column!r}:"
        raise typer.BadParameter(f"{wrong} {path} holds those of {names}", param_hint="--method")
    rows, vectors = [np.zeros(0, np.int64)], [np.zeros((0, file.infos[column].dimension), np.float32)]
    for numbers, block in file.blocks(column):
        rows.append(numbers)
        vectors.append(block)
    every, missing = np.concatenate(rows), file.missing()
    notes = [f"no vector: {missing:,} of {plural(len(file), 'row')} of {path}"] if missing else []
    notes += unknown_in(file)
    return Gathered(
        np.concatenate(vectors), file.lines(every), lambda some: file.texts(every[list(some)]), missing, False, notes,
        stored=True,
        kept=lambda lines: _kept(file.parts, {TEXT, *file.infos, *(["row"] if path.is_dir() else [])}, lines),
    )  # fmt: skip


def _kept(parts: Sequence[Path], other: set[str], lines: Sequence[int]) -> dict[str, Any]:
    """Some rows, in ascending order, of all columns of parts but the others."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    names, rows, start, found = None, np.asarray(lines, np.int64) - 1, 0, []
    for part in parts:
        with pq.ParquetFile(part, pre_buffer=False) as file:
            names = names or [name for name in file.schema_arrow.names if name not in other]
            end = start + file.metadata.num_rows
            low, high = np.searchsorted(rows, [start, end])
            found.append(file.read(columns=names).take(pa.array(rows[low:high] - start)))
            start = end
    table = pa.concat_tables(found)
    return {name: table[name] for name in table.schema.names}


def _indexed(folder: Path) -> Gathered:
    """The vectors of an index, each text once; chunks with one text may have several."""
    import hashlib

    import numpy as np

    from ..search.index import VECTOR, Index, first_line

    index = Index.open(folder)
    try:
        rows = index.table.search().select(["id", "text", *index.kept, VECTOR]).limit(max(1, index.rows)).to_arrow()
    except (ValueError, RuntimeError, OSError) as e:
        raise DataError(f"{folder} cannot be read: {first_line(e)}") from None
    values = rows[VECTOR].combine_chunks().flatten().to_numpy(zero_copy_only=False)
    vectors = np.asarray(values, np.float32).reshape(-1, index.info.dimension)
    alike: dict[bytes, list[int]] = {}
    texts = (text for part in rows["text"].iterchunks() for text in part.to_pylist())
    for line, (text, vector) in enumerate(zip(texts, vectors, strict=True), 1):
        alike.setdefault(hashlib.blake2b(repr(text).encode() + vector.tobytes(), digest_size=16).digest(), []).append(
            line
        )
    first = np.array([lines[0] - 1 for lines in alike.values()], np.int64)
    return Gathered(
        vectors[first], list(alike.values()), lambda some: rows["text"].take(first[list(some)]).to_pylist(), 0, False,
        ids=rows["id"].to_pylist(),
        kept=lambda lines: {name: rows[name].take([line - 1 for line in lines]) for name in index.kept},
    )  # fmt: skip


def check_output(path: Path | None, source: Path | None, overwrite: bool, option: str) -> None:
    """Raise typer.BadParameter for a file that cannot be written: of another ending, the input, or one that exists."""
    if path is None:
        return
    if path.suffix.lower() not in ENDINGS:
        raise typer.BadParameter(f"{path}: the name ends in {', '.join(ENDINGS)}", param_hint=option)
    if source is not None and path.resolve() == source.resolve():
        raise typer.BadParameter(f"{path} is the input", param_hint=option)
    if path.exists() and not overwrite:
        raise typer.BadParameter(f"{path} exists: give another name, or --overwrite", param_hint=option)


def write_listing(path: Path, columns: Mapping[str, Sequence[Any]]) -> None:
    """Write columns of equal length to a .jsonl, .csv or .parquet file, by the ending of its name, whole or not at all.

    Raises:
        DataError: the file cannot be written.
    """
    import csv
    import io

    from ..files.atomic import atomic_file

    table = path.suffix.lower() == ".csv"
    rows = zip(*(_written(values, table) for values in columns.values()), strict=True)
    with atomic_file(path) as file:
        if path.suffix.lower() == ".parquet":
            import pyarrow as pa
            import pyarrow.parquet as pq

            name = pa.string() if "id" in columns else pa.int64()
            types = {"text": pa.string(), "cosine": pa.float64(), "id": name, "repeats": name}
            plain = {k: v for k, v in columns.items() if not isinstance(v, pa.ChunkedArray)}
            made = {k: pa.array(v, types.get(k, pa.int64())) for k, v in plain.items()}
            pq.write_table(pa.table({**columns, **made}), file)
            return
        text = io.TextIOWrapper(file, "utf-8", newline="", write_through=True)
        if table:
            writer = csv.writer(text, lineterminator="\n")
            writer.writerow(columns)
            writer.writerows(rows)
        else:
            text.writelines(json.dumps(dict(zip(columns, row, strict=True)), ensure_ascii=False) + "\n" for row in rows)
        text.flush()
        text.detach()


def _written(values: Any, table: bool) -> Sequence[Any]:
    """A column as JSON has it, or as text for a table; one that Arrow does not hold stays as it is."""
    from ..files.tables import value_of
    from ..jobs.rows import as_json, as_text

    if isinstance(values, Sequence):
        return values
    found = [as_json(value_of(value)) for value in values]
    return list(map(as_text, found)) if table else found


def say_notes(found: Gathered) -> None:
    """Say which rows had no vector."""
    for line in found.notes:
        say(line)
