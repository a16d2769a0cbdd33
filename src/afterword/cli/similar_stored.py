"""Compare texts with vectors that ``embed`` wrote to a .parquet file or a folder, if they were made in the same way."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ..errors import JobError, TextsUnknown, plural
from .console import without_advice
from .model import ModelChoice, check_condition
from .similar_texts import Side, check_number, mean_of

if TYPE_CHECKING:
    from ..encoder import Encoder
    from ..jobs.recipe import MethodsEmbedder
    from ..jobs.rows import Array
    from ..jobs.stored import StoredVectors, VectorsInfo
    from ..methods import AnyMethod
    from .nearest import Nearest, Rows


@dataclass(frozen=True)
class Stored:
    """Stored vectors, and how to embed texts that are compared with them.

    Attributes:
        file: the file.
        columns: for each method, the column that holds its vectors.
        embedder: embeds texts as the file's were embedded.
        means: by method, what is subtracted from the file's vectors (D,); empty = nothing.
    """

    file: StoredVectors
    columns: Mapping[str, str]
    embedder: MethodsEmbedder
    means: Mapping[str, Array] = field(default_factory=dict)

    def centred(self, side: Side | None = None) -> Stored:
        """The same with the mean of all vectors of the file, and of a side, taken off; the file is read once more."""
        means = {}
        for name, column in self.columns.items():
            own = [] if side is None else [side.vectors[name]]
            means[name] = mean_of(chain(own, (vectors for _, vectors in self.file.blocks(column))))
        return replace(self, means=means)

    def _less(self, name: str, vectors: Array) -> Array:
        return vectors - self.means[name] if self.means else vectors

    def nearest(self, side: Side, by: str, top: int | None, threshold: float | None) -> tuple[Nearest, Side]:
        """The most similar pairs, and the texts of the file that are in them, each once."""
        import numpy as np

        from .nearest import nearest

        first = next(iter(self.columns))
        blocks = ((rows, self._less(first, vectors)) for rows, vectors in self.file.blocks(self.columns[first]))
        pairs = nearest(side.vectors[first], blocks, by, top=top, threshold=threshold)
        rows = np.unique(pairs.columns)
        return replace(pairs, columns=np.searchsorted(rows, pairs.columns)), self._side(rows)

    def within(self, by: str, top: int | None, threshold: float | None) -> tuple[Nearest, Side]:
        """The most similar pairs of the file's own texts, whose vectors are held in memory, and the texts in them."""
        import numpy as np

        from .nearest import nearest, numbered

        name, column = next(iter(self.columns.items()))
        every = np.concatenate([np.zeros(0, np.int64), *(rows for rows, _ in self.file.blocks(column))])
        check_number(len(every), [], alone=True)
        matrix = self._less(name, self.file.vectors(column, every))
        pairs = nearest(matrix, numbered(matrix), by, top=top, threshold=threshold, itself=True)
        used = np.unique(np.concatenate([pairs.rows, pairs.columns]))
        rows, columns = (np.searchsorted(used, each) for each in (pairs.rows, pairs.columns))
        return replace(pairs, rows=rows, columns=columns), self._side(every[used])

    def _side(self, rows: Rows) -> Side:
        """Some rows of the file, which are in ascending order."""
        vectors = {name: self._less(name, self.file.vectors(column, rows)) for name, column in self.columns.items()}
        numbers = [[line - 1 for line in lines] for lines in self.file.lines(rows)]
        return Side(self.file.texts(rows), numbers, vectors, [], True, "rows")

    def summary(self) -> list[str]:
        """A line on rows of the file that have no vector, and one on texts that its model does not know."""
        missing = self.file.missing()
        told = [f"no vector: {missing:,} of {plural(len(self.file), 'row')} of {self.file.path}"] if missing else []
        return [*told, *unknown_in(self.file)]


def open_stored(
    path: Path,
    choice: ModelChoice,
    methods: dict[str, AnyMethod],
    settings: dict[str, Any],
    queries: bool = False,
    condition: str | None = None,
) -> Stored:
    """Load the model, and check that it makes the vectors of the file. What the file tells is checked before.

    Without a method, those of the file are taken; so is the prompt, if none is given. Vectors are cut and scaled as
    those of the file.

    Args:
        path: the file, or the folder of a job.
        choice: the model.
        methods: the methods that are given.
        settings: options of `Encoder.encode`.
        queries: whether texts will be embedded, to be compared with the file's.
        condition: the condition of these texts.

    Raises:
        DataError: the file holds no vectors of texts.
        ModelError: the model or the method is another one, or gives other vectors.
        typer.BadParameter: --truncate-dim is not that of the file; a condition is missing, or has no effect.
    """
    file = stored_at(path)
    _check_methods(file, methods, choice.model)
    if queries:
        from ..methods.serialize import from_json

        used = list(methods.values()) or [from_json(info.method) for info in file.infos.values()]
        check_condition(used, "--condition", condition is not None)
    with without_advice():
        encoder = choice.load(next(iter(methods.values()), None))
    if methods:
        of_methods = {name: replace(encoder, method=method) for name, method in methods.items()}
        columns = {name: _column_of(one, file, choice.model) for name, one in of_methods.items()}
    else:
        of_methods = {column: _encoder_of(encoder, info, file, choice.model) for column, info in file.infos.items()}
        columns = {column: column for column in of_methods}
    for name, column in columns.items():
        _check_probes(of_methods[name], file.infos[column], path)
    info = file.infos[next(iter(columns.values()))]
    asked = settings["truncate_dim"]
    if asked not in (None, info.dimension):
        raise typer.BadParameter(f"{asked}: the vectors of {path} have {info.dimension}", param_hint="--truncate-dim")
    encoder = next(iter(of_methods.values()))
    settings = {**settings, "normalize_embeddings": info.normalized}
    settings["truncate_dim"] = info.dimension if info.dimension < encoder.dimension else None
    if settings["prompt"] is None and settings["prompt_name"] is None:
        settings["prompt"] = info.prompt or ""
    from ..jobs.recipe import MethodsEmbedder

    embedder = MethodsEmbedder(encoder, {name: one.method for name, one in of_methods.items()}, settings, condition)
    return Stored(file, columns, embedder)


def stored_at(path: Path) -> StoredVectors:
    """The vectors of a file, or of a job that is complete.

    Raises:
        DataError: it holds no vectors of texts.
        JobError: the job is not complete, or damaged.
    """
    from ..jobs.stored import StoredVectors

    if not path.is_dir():
        return StoredVectors(path)
    from ..jobs.job import Job

    job = Job.open(path)
    if not job.complete:
        raise JobError(f"{path} is not complete: {job.result().rows:,} of {plural(job.rows, 'row')} done; the command "
                       "that began it goes on")  # fmt: skip
    return StoredVectors(path, job.parts(), job.result().unknown)


def unknown_in(file: StoredVectors) -> list[str]:
    """A warning of stored texts that are mostly unknown to the model that embedded them, if there are any."""
    return [f"warning: {file.path}: {TextsUnknown(file.unknown)}"] if file.unknown else []


def _check_methods(file: StoredVectors, methods: Mapping[str, AnyMethod], model: str) -> None:
    """Raise ModelError if a method made no column of a file, as far as that is known before the model is loaded."""
    from ..methods.serialize import to_json

    made = [_unnamed(info.method) for info in file.infos.values()]
    for method in methods.values():
        if _unnamed(to_json(method)) not in made:
            raise _other(file, model, method)


def _unnamed(method: Mapping[str, Any]) -> Any:
    """What an encoder's identity holds of a method that `to_json` gave, but for the code of a user's own classes."""
    if "methods" in method:
        return {**method, "name": None, "methods": [_unnamed(member) for member in method["methods"]]}
    kept = {name: {**part} for name, part in method.items() if isinstance(part, Mapping)}
    for part in kept.values():
        part.pop("class", None)
    return json.loads(json.dumps({"weigh": {}, **method, **kept, "name": None}))


def _column_of(encoder: Encoder, file: StoredVectors, model: str) -> str:
    """The column with the vectors of an encoder."""
    identity = encoder.identity
    for column, info in file.infos.items():
        if info.identity == identity:
            return column
    raise _other(file, model, encoder.method, identity)


def _encoder_of(encoder: Encoder, info: VectorsInfo, file: StoredVectors, model: str) -> Encoder:
    """The encoder that made the vectors of a column: with its own method, or with the column's."""
    from ..methods.serialize import from_json
    from ..post import Normalise

    method = from_json(info.method)
    kept = tuple(step for step in encoder.post if isinstance(step, Normalise))
    tried = [encoder, replace(encoder, method=method), replace(encoder, method=method, post=kept)]
    for one in tried:
        if one.identity == info.identity:
            return one
    raise _other(file, model, encoder.method, encoder.identity)


def _other(file: StoredVectors, model: str, method: AnyMethod, identity: str | None = None) -> Exception:
    from ..errors import ModelError

    def hashed(value: str | None) -> str:
        return "" if identity is None else f" ({value:.8})"  # the same names, but another file or setting

    made = " or ".join(
        f"{info.model} by {info.method.get('name')}{hashed(info.identity)}" for info in file.infos.values()
    )
    return ModelError(
        f"the vectors of {file.path} were made by {made}, not by {model} by {method}{hashed(identity)}: give the same "
        "model, --method and --max-length, or embed the texts again"
    )


def _check_probes(encoder: Encoder, info: VectorsInfo, path: Path) -> None:
    from ..errors import ModelError
    from ..jobs.stored import TOLERANCE, probe_difference, probes

    assert info.probes is not None  # read from a file, which must hold them
    difference = probe_difference(info.probes, probes(encoder))
    if not difference <= TOLERANCE:
        raise ModelError(
            f"{encoder.method} gives other vectors here than where {path} was written: the probe texts differ by "
            f"{difference:.1e} of their length: embed the texts again"
        )
