"""What a task is: data in, vectors asked for, scores out."""

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
    """What a task asks of an encoder; `Encoder` is one."""

    def encode(self, texts: Sequence[str], /, *, conditions: Sequence[str] | None = None) -> Array:
        """Sentence vectors (n, D)."""

    def encode_words(self, texts: Sequence[str], words: Sequence[Any], /) -> Any:
        """Word vectors, as `Encoder.encode_words` gives them."""


def embed(embedder: Embedder, texts: Sequence[str]) -> Array:
    """Sentence vectors (n, D) of n texts, each different text embedded once.

    An empty or blank text is read as ".", as SentEval's own examples do (facebookresearch/SentEval, examples/bow.py,
    `batcher`); SimCSE's evaluation feeds special tokens alone.
    """
    given = [as_read(t) for t in texts]
    row = {t: i for i, t in enumerate(dict.fromkeys(given))}
    return embedder.encode(list(row))[[row[t] for t in given]]


def as_read(text: str) -> str:
    """The text, or "." where there is none."""
    return text if text.strip() else "."


@dataclass(frozen=True)
class Scores:
    """What a task found.

    Attributes:
        main: the score that tables show, by convention between 0 and 1 (or -1 and 1); NaN where it is undefined.
        metrics: all scores by name, `main` among them under the name of the task's main metric; values are numbers,
            or objects of numbers (scores by subset).
        items: per pair or question, equally long columns: "gold" and "similarity" of pairs, whose correlation is
            the score; or "correct", whose mean is. Bootstrap intervals are drawn over them.
        notes: what a reader must know, why a score is NaN for instance.
    """

    main: float
    metrics: Mapping[str, Any]
    items: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


class Loaded(ABC):
    """A task with its data in memory."""

    def texts(self) -> Sequence[str]:
        """The texts whose plain sentence vectors `score` will ask for: they can be made for all tasks at once."""
        return ()

    @abstractmethod
    def score(self, embedder: Embedder, seed: int) -> Scores:
        """Score an encoder.

        Args:
            embedder: makes vectors.
            seed: of folds, classifiers and clusterings.
        """


@dataclass(frozen=True)
class Task(ABC):
    """A data set and a protocol; a frozen value, whose fields are the protocol's options.

    Attributes:
        name: in results, as in "STS12".
    """

    name: str

    group: ClassVar[str]
    """What it is asked for by, together with its kin: "sts", "transfer" ..."""
    metric: ClassVar[str]
    """The name of the main score among `Scores.metrics`."""
    languages: ClassVar[tuple[str, ...]] = ("eng-Latn",)
    libraries: ClassVar[tuple[str, ...]] = ()
    """Packages besides numpy that the score depends on."""
    seeded: ClassVar[bool] = False
    """Whether the seed changes the score."""

    @abstractmethod
    def files(self) -> Sequence[str]:
        """The data sets it reads, by the names that a `Source` takes: a changed one makes old scores void."""

    @abstractmethod
    def load(self, source: Source) -> Loaded:
        """Read the data.

        Args:
            source: a `Folder`, or the `Hub`.

        Raises:
            DataError: it is not there, or not as it should be; the message names file and line.
        """

    def run(self, embedder: Embedder, source: Source, seed: int = 0) -> Scores:
        """Load and score."""
        return self.load(source).score(embedder, seed)
