"""CoarseWSD-20: word sense disambiguation by the nearest sense vector."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from ..encode.similarity import unit
from ..errors import DataError
from .rows import Source, label, text
from .senses import UNDECIDED, winner, word_rows
from .task import Array, Embedder, Loaded, Scores, Task

CHUNK = 2048  # number of occurrences whose vectors are in memory at a time

Embedded = list[tuple["Occurrence", Array | None]]


@dataclass(frozen=True)
class Occurrence:
    """An occurrence of a word in a sentence.

    Attributes:
        word: the word.
        text: the sentence.
        span: start and end of the word in characters, half-open.
        sense: the label of its sense.
    """

    word: str
    text: str
    span: tuple[int, int]
    sense: str


@dataclass(frozen=True)
class NearestSense(Task):
    """Word sense disambiguation on CoarseWSD-20 (Loureiro et al. 2021, Computational Linguistics 47(2), "1NN").

    A sense's vector is the mean of the vectors of its training occurrences (create_1nn_vecs.py of
    danlou/bert-disambiguation). A test occurrence gets the sense of its word whose vector has the largest cosine with
    its own. The main score is the accuracy over all test occurrences, nearly half of which are of two of the twenty
    words; the mean over words is among the metrics. The authors' vectors are sums of the last four layers; here the
    encoder's method decides which states are read.

    Attributes:
        file: name of the data set, with rows {"word", "index", "text", "sense", "split"}: the word is token `index` of
            the text split at whitespace, from 0; the split is "train" or "test".
    """

    file: str

    group: ClassVar[str] = "wordsense"
    metric: ClassVar[str] = "accuracy"

    def files(self) -> Sequence[str]:
        """The one data set."""
        return (self.file,)

    def load(self, source: Source) -> Loaded:
        """Read the occurrences.

        Raises:
            DataError: there is no such data set, an index does not point at the word, a word has test rows but no
                training rows, or there are no test rows.
        """
        row = _Row()
        fields = {"word": row.word, "text": row.text, "index": row.span, "sense": label, "split": _split}
        words: dict[str, dict[str, list[Occurrence]]] = defaultdict(lambda: {"train": [], "test": []})
        for r in source.rows(self.file, fields):
            words[r["word"]][r["split"]].append(Occurrence(r["word"], r["text"], r["index"], r["sense"]))
        if untrained := [w for w, o in words.items() if o["test"] and not o["train"]]:
            raise DataError(f"{self.file}: {untrained[0]!r} has test rows and no train rows: its senses have no vector")
        if not any(o["test"] for o in words.values()):
            raise DataError(f"{self.file} has no test rows")
        return Occurrences({w: (o["train"], o["test"]) for w, o in words.items() if o["test"]})


@dataclass
class _Row:
    """Checks of one row: word and text are read first, then the index is compared with them."""

    read: list[str] = field(default_factory=lambda: ["", ""])

    def word(self, value: Any) -> str:
        self.read[0] = text(value)
        return self.read[0]

    def text(self, value: Any) -> str:
        self.read[1] = text(value)
        return self.read[1]

    def span(self, value: Any) -> tuple[int, int]:
        word, sentence = self.read
        spans = [m.span() for m in re.finditer(r"\S+", sentence)]
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < len(spans):
            raise ValueError(f"is {value!r:.40}: the text has the tokens 0 to {len(spans) - 1}")
        start, end = spans[value]
        if sentence[start:end].casefold() != word.casefold():
            raise ValueError(f"is {value}, where {sentence[start:end]!r:.40} stands and not {word!r:.40}")
        return start, end


def _split(value: Any) -> str:
    if value not in ("train", "test"):
        raise ValueError(f"is {value!r:.40}: give 'train' or 'test'")
    return str(value)


@dataclass(frozen=True)
class Occurrences(Loaded):
    """Occurrences in memory: for each word, its training occurrences and its test occurrences."""

    words: dict[str, tuple[Sequence[Occurrence], Sequence[Occurrence]]]

    def score(self, embedder: Embedder, seed: int) -> Scores:
        """Score an encoder, word by word; the seed is not used."""
        tally = _Tally()
        for word, (train, test) in self.words.items():
            senses, vectors = _sense_vectors(embedder, train, tally)
            for chunk in _embedded(embedder, test):
                for occurrence, row in chunk:
                    chosen = winner(vectors @ unit(row)) if row is not None and senses else UNDECIDED
                    tally.undecided += row is not None and chosen == UNDECIDED
                    tally.cut += row is None
                    hit = chosen != UNDECIDED and senses[chosen] == occurrence.sense
                    tally.hits[word].append((occurrence.sense, hit))
            known = set(senses)
            tally.unknown += sum(o.sense not in known for o in test)
        return tally.scores()


def _embedded(embedder: Embedder, occurrences: Sequence[Occurrence]) -> Iterator[Embedded]:
    """The occurrences with their vectors, `CHUNK` at a time to bound memory; None for a word that was cut off."""
    for first in range(0, len(occurrences), CHUNK):
        chunk = occurrences[first : first + CHUNK]
        rows = word_rows(embedder, [o.text for o in chunk], [o.span for o in chunk])
        yield list(zip(chunk, rows, strict=True))


def _sense_vectors(embedder: Embedder, train: Sequence[Occurrence], tally: _Tally) -> tuple[list[str], Array]:
    """The senses, and the mean vector of each, scaled to length 1 (senses, D)."""
    sums: dict[str, Array] = {}
    for chunk in _embedded(embedder, train):
        for occurrence, row in chunk:
            tally.dropped += row is None
            if row is not None:  # a sum has the direction of the mean
                sums[occurrence.sense] = sums.get(occurrence.sense, 0) + np.asarray(row, np.float64)
    return list(sums), unit(np.stack(list(sums.values()))) if sums else np.zeros((0, 0))


@dataclass
class _Tally:
    """Correct or wrong for each test occurrence, and counts of those that could not be decided."""

    hits: dict[str, list[tuple[str, bool]]] = field(default_factory=lambda: defaultdict(list))
    dropped: int = 0
    cut: int = 0
    unknown: int = 0
    undecided: int = 0

    def scores(self) -> Scores:
        correct = np.array([hit for hits in self.hits.values() for _, hit in hits], np.float64)
        senses: dict[tuple[str, str], list[bool]] = defaultdict(list)
        for word, hits in self.hits.items():
            for sense, hit in hits:
                senses[word, sense].append(hit)
        words = {word: float(np.mean([hit for _, hit in hits])) for word, hits in self.hits.items()}
        decided = self.cut + self.undecided < len(correct)
        metrics: dict[str, Any] = {
            "accuracy": float(correct.mean()) if decided else math.nan,
            "accuracy_macro": float(np.mean(list(words.values()))) if decided else math.nan,
            "recall_macro": float(np.mean([np.mean(h) for h in senses.values()])) if decided else math.nan,
            "words": words if decided else dict.fromkeys(words, math.nan),
        }
        return Scores(metrics["accuracy"], metrics, {"correct": correct}, self.notes(len(correct)))

    def notes(self, count: int) -> tuple[str, ...]:
        said = {
            f"{self.dropped} train occurrences were cut off with the end of their text and are left out": self.dropped,
            f"{self.cut} of {count} test occurrences were cut off with the end of their text: wrong": self.cut,
            f"{self.unknown} of {count} test occurrences have a sense without a vector: wrong": self.unknown,
            f"{self.undecided} of {count} test occurrences are as near to one sense as to another: wrong, or NaN "
            "where that is all of them": self.undecided,
        }
        return tuple(note for note, number in said.items() if number)


TASKS: tuple[Task, ...] = (NearestSense("CoarseWSD20", "en/coarsewsd20/all"),)
