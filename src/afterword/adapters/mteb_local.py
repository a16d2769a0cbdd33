"""mteb's own task classes and metrics on rows of one's own: nothing is looked up on the hub or written to its cache."""

from __future__ import annotations

import json
import math
import warnings
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError
from ..tasks.rows import Source
from ..tasks.task import Array, Embedder, Loaded, Scores, Task
from .mteb import MtebModel, require_mteb

SEED = 42
"""mteb's own; added to ours, so that seed 0 gives its scores."""

Columns = Mapping[str, Sequence[Any]]
"""Equally long columns of a split, or the parts of a retrieval task."""


@dataclass(frozen=True)
class MtebTask(Task):
    """A task of mteb on rows of one's own.

    Args:
        name: in results.
        file: the data set, or the folder that holds its parts.
        official: the task of mteb that these rows are of: its settings hold. None = mteb has no such data set, and the
            plain class of its kind runs it under our name.
        split: under which mteb knows these rows.
    """

    file: str
    official: str | None = None
    split: str = "test"

    kind: ClassVar[str]
    """mteb's type of task."""
    base: ClassVar[str]
    """mteb's class for tasks of that type."""
    paper_metric: ClassVar[str]
    """The metric that the tables of ReBA show (Table 3's caption), by its name among `Scores.metrics`."""
    libraries = ("mteb", "scikit-learn", "scipy")

    def files(self) -> Sequence[str]:
        """The one data set."""
        return (self.file,)

    def load(self, source: Source) -> MtebLoaded:
        """Read and check the rows.

        Raises:
            MissingExtra: mteb is not installed.
            DataError: as `Task.load`.
        """
        require_mteb()
        revision = "local-" + "-".join(source.digest(file)[:12] for file in self.files())
        return self.read(source, revision)

    @abstractmethod
    def read(self, source: Source, revision: str) -> MtebLoaded:
        """The rows, checked."""

    def mteb_task(self, source: Source, seed: int = 0) -> Any:
        """A task of mteb that has its data, for ``mteb.evaluate(as_mteb(encoder), [...])``.

        Args:
            source: of the rows.
            seed: 0 = mteb's own.

        Raises:
            DataError: as `load`.
        """
        return self.load(source).mteb_task(seed)

    def settings(self) -> Mapping[str, Any]:
        """What a task without an official one sets in its class."""
        return {}


@dataclass(frozen=True)
class MtebLoaded(Loaded):
    """A task of mteb with its rows in memory.

    Attributes:
        task: what it is.
        revision: names the rows' content, in place of the hub's commit.
        splits: columns by split.
        asked: what `texts` gives.
        size: how many samples mteb would count.
        notes: what a reader of the scores must know.
    """

    task: MtebTask
    revision: str
    splits: Mapping[str, Columns]
    asked: Sequence[str]
    size: int
    notes: tuple[str, ...] = ()

    predicts: ClassVar[bool] = False
    """Whether `items` needs mteb's predictions."""

    def texts(self) -> Sequence[str]:
        """Each different text that mteb is known to ask for."""
        return list(dict.fromkeys(self.asked))

    def dataset(self) -> Any:
        """The rows as mteb's task holds them."""
        from datasets import Dataset, DatasetDict

        return DatasetDict({split: Dataset.from_dict(dict(columns)) for split, columns in self.splits.items()})

    def items(self, predicted: Any) -> Mapping[str, NDArray[Any]]:
        """`Scores.items`, out of what mteb predicted."""
        return {}

    def mteb_task(self, seed: int = 0) -> Any:
        """As `MtebTask.mteb_task`."""
        with untouched_seeds():
            kind = _official(self.task.official) if self.task.official else _own(self.task)
            made = kind(seed=SEED + seed)
        told = {"dataset": {"path": self.task.file, "revision": self.revision}, "superseded_by": None}
        made.metadata = kind.metadata.model_copy(update=told)
        made.dataset, made.data_loaded = self.dataset(), True
        return made.filter_eval_splits([self.task.split])

    def score(self, embedder: Embedder, seed: int) -> Scores:
        """Run mteb's task on an encoder, in this process."""
        watched = Watched(embedder)
        made = self.mteb_task(seed)
        with quiet(), untouched_seeds(), TemporaryDirectory() as folder:
            found = made.evaluate(
                _model(watched, embedder),
                self.task.split,
                encode_kwargs={"show_progress_bar": False},
                prediction_folder=Path(folder) if self.predicts else None,
                seed=SEED + seed,
            )["default"]
            predicted = _predicted(Path(folder) / made.prediction_file_name, self.task.split) if self.predicts else None
        metrics = {k: float(v) for k, v in found.items() if isinstance(v, int | float) and _told(k)}
        notes = (*self.notes, *_unofficial(made, self.task, self.size))
        if watched.constant:
            metrics = dict.fromkeys(metrics, math.nan)
            notes = (*notes, "all vectors are equal: they tell no texts apart, and no score is defined")
        return Scores(metrics[self.task.metric], metrics, self.items(predicted), notes)


class Watched:
    """An embedder, and whether all the vectors it has made are equal."""

    def __init__(self, embedder: Embedder) -> None:
        self.embedder, self.constant = embedder, True
        self.first: Array | None = None

    def encode(self, texts: Sequence[str], /, **options: Any) -> Array:
        """Sentence vectors (n, D)."""
        made = self.embedder.encode(texts, **options)
        self.first = made[0] if self.first is None else self.first
        self.constant = self.constant and bool((made == self.first).all())
        return made

    def encode_words(self, texts: Sequence[str], words: Sequence[Any], /) -> Any:
        """Word vectors."""
        return self.embedder.encode_words(texts, words)


def _model(watched: Watched, embedder: Embedder) -> MtebModel:
    from mteb.models.model_meta import ModelMeta

    prompts = getattr(embedder, "prompts", None) or {}
    return MtebModel(watched, ModelMeta.create_empty(), prompts, getattr(embedder, "similarity_fn_name", "cosine"))


def _official(name: str) -> Any:
    import mteb

    return type(mteb.get_task(name))


@cache
def _own(task: MtebTask) -> Any:
    """A class of mteb's kind under the task's own name."""
    from mteb import abstasks
    from mteb.abstasks.task_metadata import TaskMetadata

    metadata = TaskMetadata(
        name=task.name,
        description=f"{task.file}, not a data set of mteb's",
        dataset={"path": task.file, "revision": "local"},
        type=task.kind,
        category="t2c" if task.kind in ("Classification", "Clustering") else "t2t",
        eval_splits=[task.split],
        eval_langs=list(task.languages),
        main_score=task.metric,
    )
    return type(task.name, (getattr(abstasks, task.base),), {"metadata": metadata, **task.settings()})


def _told(metric: str) -> bool:
    """Whether a score of mteb's is passed on: not the one under two names, nor the confidence curves of retrieval."""
    return metric not in ("main_score", "hf_subset") and not metric.startswith("nauc")


def _unofficial(made: Any, task: MtebTask, size: int) -> tuple[str, ...]:
    """A note where this is not the official data: another data set, or not as many samples as mteb counts."""
    if task.official is None:
        return (f"mteb has no data set {task.name}: its plain {task.base} was run on {task.file}",)
    counted = (made.metadata.n_samples or {}).get(task.split)
    if counted in (None, size):
        return ()
    return (f"{size} samples where mteb's {task.official} has {counted} ({task.split}): not a score of that task",)


def _predicted(path: Path, split: str) -> Any:
    return json.loads(path.read_text("utf-8"))["default"][split]


@contextmanager
def quiet() -> Iterator[None]:
    """No progress bars of datasets, no warnings of correlations that are undefined: a note says so."""
    import datasets

    shown = datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module=r"scipy|sklearn|mteb")
            warnings.filterwarnings("ignore", message=".*(constant|precision loss|ill-defined).*")
            yield
    finally:
        if not shown:
            datasets.enable_progress_bars()


@contextmanager
def untouched_seeds() -> Iterator[None]:
    """mteb seeds `random`, numpy and torch when a task is made: put back what they were."""
    import random

    import torch

    kept = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    try:
        yield
    finally:
        random.setstate(kept[0])
        np.random.set_state(kept[1])  # noqa: NPY002
        torch.set_rng_state(kept[2])


def different(values: Sequence[Any], what: str, where: str) -> None:
    """Whether there are at least two classes, or two scores.

    Raises:
        DataError: there is one.
    """
    if len(set(values)) < 2:
        raise DataError(f"{where}: all {len(values)} rows have the {what} {values[0]!r}: at least two are needed")
