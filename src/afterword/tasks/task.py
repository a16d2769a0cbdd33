"""The interface of a task: it loads data, asks an encoder for vectors and returns scores."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from .rows import Source

Array = NDArray[np.floating[Any]]


class Embedder(Protocol):
    """The methods that a task needs of an encoder; `Encoder` has them."""

    def encode(self, texts: Sequence[str], /, *, conditions: Sequence[str] | None = None) -> Array:
        """Sentence vectors (n, D)."""

    def encode_words(self, texts: Sequence[str], words: Sequence[Any], /) -> Any:
        """Word vectors, as `Encoder.encode_words` gives them."""


def embed(embedder: Embedder, texts: Sequence[str]) -> Array:
    """Sentence vectors (n, D) of n texts; equal texts are embedded once.

    A blank text is replaced by ".", as in SentEval's examples (facebookresearch/SentEval, examples/bow.py, `batcher`);
    SimCSE's evaluation runs the special tokens alone.
    """
    read = [as_read(t) for t in texts]
    row = {t: i for i, t in enumerate(dict.fromkeys(read))}
    return embedder.encode(list(row))[[row[t] for t in read]]


def as_read(text: str) -> str:
    """The text, or "." for a blank one."""
    return text if text.strip() else "."


@dataclass(frozen=True)
class Scores:
    """The scores of an encoder on a task.

    Attributes:
        main: the score that tables show, by convention between 0 and 1 (or -1 and 1); NaN if it is undefined.
        metrics: all scores by name, `main` among them under the name of the task's main metric; values are numbers,
            or dictionaries of numbers (scores by subset).
        items: values per pair or question, from which bootstrap intervals are drawn, as columns of equal length:
            "gold" and "similarity", whose correlation is the score; or "correct", whose mean is the score.
        notes: remarks for the reader, for instance why a score is NaN.
    """

    main: float
    metrics: Mapping[str, Any]
    items: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


class Loaded(ABC):
    """A task with its data in memory."""

    def texts(self) -> Sequence[str]:
        """The texts that `score` will embed without conditions; they are embedded beforehand, for all encoders."""
        return ()

    @abstractmethod
    def score(self, embedder: Embedder, seed: int) -> Scores:
        """Score an encoder; the seed is that of folds, classifiers and clusterings."""


@dataclass(frozen=True)
class Task(ABC):
    """A data set with an evaluation protocol: a frozen dataclass whose fields are the protocol's options.

    Attributes:
        name: name in results, as in "STS12".
        file: name of the data set, as in "en/sts/sts12.test", with or without its file ending.
    """

    name: str
    file: str = ""

    group: ClassVar[str]
    """The name that selects this task together with related ones: "sts", "transfer" ..."""
    metric: ClassVar[str]
    """The name of the main score in `Scores.metrics`."""
    languages: ClassVar[tuple[str, ...]] = ("eng-Latn",)
    libraries: ClassVar[tuple[str, ...]] = ()
    """Packages besides numpy that the score depends on."""
    seeded: ClassVar[bool] = False
    """Whether the seed changes the score."""

    def revision(self, source: Source) -> str:
        """A hash of the data that it reads: if it changes, old scores are void; errors as for `load`."""
        return source.digest(self.file)

    @abstractmethod
    def load(self, source: Source) -> Loaded:
        """Read the data.

        Args:
            source: a `Folder`, or the `Hub`.

        Raises:
            DataError: the data are missing or invalid; the message names file and line.
        """

    def run(self, embedder: Embedder, source: Source, seed: int = 0) -> Scores:
        """Load the data and score an encoder."""
        return self.load(source).score(embedder, seed)


@dataclass(frozen=True)
class TaskRun:
    """A task to run.

    Args:
        task: the task with its options.
        source: the source of its data.
        label: name of its results; None = the task's name.
    """

    task: Task
    source: Source
    label: str | None = None

    @property
    def name(self) -> str:
        """The name of its results."""
        return self.label or self.task.name

    def seeds(self, seeds: Sequence[int]) -> tuple[int, ...]:
        """The seeds of these to run it with; 0 alone if the task uses no seed."""
        return tuple(seeds) if self.task.seeded else (0,)
