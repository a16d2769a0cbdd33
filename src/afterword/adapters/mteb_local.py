"""mteb's task classes and metrics on local files: nothing is fetched from the hub or written to its cache."""

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

from numpy.typing import NDArray

from ..errors import DataError
from ..tasks.published import OTHER_DATA
from ..tasks.rows import Source
from ..tasks.task import Array, Embedder, Loaded, Scores, Task
from .mteb import MtebModel, require_mteb
from .random_state import untouched_seeds

SEED = 42
"""mteb's default seed; ours is added to it, so that our seed 0 gives mteb's scores."""

CONSTANT = "all vectors are equal: they tell no texts apart, and no score is defined"
"""The note on the scores of an embedder that gives every text the same vector."""

Columns = Mapping[str, Sequence[Any]]
"""Equally long columns of a split, or the parts of a retrieval task."""


@dataclass(frozen=True)
class MtebTask(Task):
    """A task of mteb on local rows.

    Args:
        name: name in results.
        file: name of the data set, or of the folder with its parts.
        official: the task of mteb that has this data set, whose settings are used. None = mteb has no such data set;
            then mteb's class for tasks of this type runs it under our name.
        split: mteb's name of the split.
    """

    file: str
    official: str | None = None
    split: str = "test"

    kind: ClassVar[str]
    """Type of the task, as mteb names it."""
    base: ClassVar[str]
    """mteb's class for tasks of that type."""
    paper_metric: ClassVar[str]
    """The metric in the tables of ReBA (Table 3's caption), by its name in `Scores.metrics`."""
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
        """Read and check the rows."""

    def mteb_task(self, source: Source, seed: int = 0) -> Any:
        """The task as an object of mteb with its data loaded, for ``mteb.evaluate(as_mteb(encoder), [...])``.

        Args:
            source: the source of the rows.
            seed: added to mteb's own.

        Raises:
            DataError: as `load`.
        """
        return self.load(source).mteb_task(seed)

    def settings(self) -> Mapping[str, Any]:
        """Attributes of the class that is made for a task without an official one."""
        return {}


@dataclass(frozen=True)
class MtebLoaded(Loaded):
    """A task of mteb with its rows in memory.

    Attributes:
        task: the task.
        revision: a hash of the rows, in place of the hub's commit.
        splits: columns by split.
        asked: the texts that mteb will embed.
        size: number of samples, as mteb counts them.
        notes: remarks for the reader of the scores.
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
        """The texts that mteb will embed, without duplicates."""
        return list(dict.fromkeys(self.asked))

    def dataset(self) -> Any:
        """The rows in the form in which mteb's task holds them."""
        from datasets import Dataset, DatasetDict

        return DatasetDict({split: Dataset.from_dict(dict(columns)) for split, columns in self.splits.items()})

    def items(self, predicted: Any) -> Mapping[str, NDArray[Any]]:
        """`Scores.items`, from mteb's predictions."""
        return {}

    def mteb_task(self, seed: int = 0) -> Any:
        """The task as an object of mteb, as `MtebTask.mteb_task`."""
        with untouched_seeds():
            kind = _official(self.task.official) if self.task.official else _own(self.task)
            task = kind(seed=SEED + seed)
        changes = {"dataset": {"path": self.task.file, "revision": self.revision}, "superseded_by": None}
        task.metadata = kind.metadata.model_copy(update=changes)
        task.dataset, task.data_loaded = self.dataset(), True
        return task.filter_eval_splits([self.task.split])

    def score(self, embedder: Embedder, seed: int) -> Scores:
        """Run mteb's task on an encoder, in this process."""
        checked = ConstantCheck(embedder)
        task = self.mteb_task(seed)
        with quiet(), untouched_seeds(), TemporaryDirectory() as folder:
            scores = task.evaluate(
                model_of(checked, embedder),
                self.task.split,
                encode_kwargs={"show_progress_bar": False},
                prediction_folder=Path(folder) if self.predicts else None,
                seed=SEED + seed,
            )["default"]
            predicted = _predicted(Path(folder) / task.prediction_file_name, self.task.split) if self.predicts else None
        metrics = {k: float(v) for k, v in scores.items() if isinstance(v, int | float) and is_reported(k)}
        notes = (*self.notes, *_unofficial(task, self.task, self.size))
        if checked.constant:
            metrics = dict.fromkeys(metrics, math.nan)
            notes = (*notes, CONSTANT)
        return Scores(metrics[self.task.metric], metrics, self.items(predicted), notes)


class ConstantCheck:
    """An embedder that records whether all its vectors so far were equal."""

    def __init__(self, embedder: Embedder) -> None:
        self.embedder, self.constant = embedder, True
        self.first: Array | None = None

    def encode(self, texts: Sequence[str], /, **options: Any) -> Array:
        """Sentence vectors (n, D)."""
        vectors = self.embedder.encode(texts, **options)
        self.first = vectors[0] if self.first is None else self.first
        self.constant = self.constant and bool((vectors == self.first).all())
        return vectors

    def encode_words(self, texts: Sequence[str], words: Sequence[Any], /) -> Any:
        """Word vectors."""
        return self.embedder.encode_words(texts, words)


def model_of(checked: ConstantCheck, embedder: Embedder) -> MtebModel:
    """The model that mteb scores: vectors of `checked`, prompts and similarity of the embedder that it wraps."""
    from mteb.models.model_meta import ModelMeta

    prompts = getattr(embedder, "prompts", None) or {}
    return MtebModel(checked, ModelMeta.create_empty(), prompts, getattr(embedder, "similarity_fn_name", "cosine"))


def _official(name: str) -> Any:
    import mteb

    return type(mteb.get_task(name))


@cache
def _own(task: MtebTask) -> Any:
    """A subclass of mteb's class for the task's type, under the task's own name."""
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


def is_reported(metric: str) -> bool:
    """Whether a score of mteb is reported: not the duplicate of the main score, nor retrieval's confidence curves."""
    return metric not in ("main_score", "hf_subset") and not metric.startswith("nauc")


def _unofficial(theirs: Any, task: MtebTask, size: int) -> tuple[str, ...]:
    """A note if the data are not mteb's: another data set, or another number of samples."""
    if task.official is None:
        return (f"mteb has no data set {task.name}: its plain {task.base} was run on {task.file}",)
    return sample_note(theirs, task.official, task.split, size)


def sample_note(theirs: Any, official: str, split: str, size: int) -> tuple[str, ...]:
    """A note if the data have another number of samples than mteb counts in its own.

    Args:
        theirs: a task of mteb.
        official: its name.
        split: the split that is evaluated.
        size: number of samples in it.
    """
    counted = (theirs.metadata.n_samples or {}).get(split)
    if counted in (None, size):
        return ()
    return (f"sample: {size:,} rows, where mteb's {official} ({split}) has {counted:,}; {OTHER_DATA}",)


def _predicted(path: Path, split: str) -> Any:
    return json.loads(path.read_text("utf-8"))["default"][split]


@contextmanager
def quiet() -> Iterator[None]:
    """A context without progress bars of datasets and warnings of undefined correlations, which a note reports."""
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


def different(values: Sequence[Any], what: str, where: str) -> None:
    """Check that there are at least two classes, or two scores.

    Raises:
        DataError: all values are equal.
    """
    if len(set(values)) < 2:
        raise DataError(f"{where}: all {len(values)} rows have the {what} {values[0]!r}: at least two are needed")
