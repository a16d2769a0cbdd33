"""Word sense tasks in Chinese: which of several sentences uses a word in another sense than the rest?"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from ..encode.similarity import unit
from ..errors import InputError
from .rows import Source, text, texts
from .senses import UNDECIDED, winner, word_rows
from .task import Array, Embedder, Loaded, Scores, Task


def euclidean(vectors: Array) -> Array:
    """For each of n vectors (n, D), the sum of its Euclidean distances to the others (ReBA, A.4).

    >>> euclidean(np.array([[0.0], [1.0], [5.0]])).tolist()
    [6.0, 5.0, 9.0]
    """
    return np.asarray(np.linalg.norm(vectors[:, None] - vectors[None], axis=-1).sum(1))


def cosine(vectors: Array) -> Array:
    """For each of n vectors (n, D), the sum of its cosine distances to the others (ReBA, A.4)."""
    distances = 1 - unit(vectors) @ unit(vectors).T
    np.fill_diagonal(distances, 0)
    return np.asarray(distances.sum(1))


def euclidean_centred(vectors: Array) -> Array:
    """For each of n vectors (n, D), its Euclidean distance to their mean.

    Source: the released ReBA, ``distance_shift`` in Code/models.py of cqdyf099/ReBA, ``Solver_Baseline``.
    """
    return np.asarray(np.linalg.norm(vectors - vectors.mean(0), axis=1))


def cosine_centred(vectors: Array) -> Array:
    """For each of n centred vectors (n, D), its negative mean cosine with all of them.

    Source: the released ReBA, ``cos_similarity_shift`` in Code/models.py of cqdyf099/ReBA, ``Solver_Baseline``.
    """
    rows = unit(vectors - vectors.mean(0))
    return np.asarray(-(rows @ rows.T).mean(1))


DECISIONS: Mapping[str, Callable[[Array], Array]] = {
    "euclidean": euclidean,
    "cosine": cosine,
    "euclidean_centred": euclidean_centred,
    "cosine_centred": cosine_centred,
}
"""Scores of the options, computed from the word's vector in each: the paper's two rules, and two of its authors' code.
The option with the largest score is the answer."""


@dataclass(frozen=True)
class Question:
    """One question.

    Attributes:
        word: a word that all options should contain.
        options: three or more sentences.
        answer: the index of the option that uses the word in another sense.
    """

    word: str
    options: tuple[str, ...]
    answer: int


@dataclass(frozen=True)
class OddSense(Task):
    """Questions of four sentences, one of which uses a word in another sense (ReBA, sections 4.3 and A.1.2, A.4).

    The word is embedded in each option; the option whose vector is farthest from the others is the answer. If an
    option lacks the word, or was truncated before it, the question counts as wrong; so does a tie. The notes say how
    many there are. (The released code uses the vector of token 0 for a word that it does not find. In the four such
    questions of WSD the option without the word is the answer, and token 0 differs from any word: they come out right
    by accident.)

    Attributes:
        file: name of the data set, with rows {"word", "options", "answer"}; the answer is an index from 0.
        decision: the key of `DECISIONS` that gives the main score; all four are among the metrics.
        occurrence: which occurrence of the word in an option is read, from 0; -1 = the last.
    """

    file: str
    decision: str = "euclidean"
    occurrence: int = 0

    group: ClassVar[str] = "wordsense"
    metric: ClassVar[str] = "accuracy"
    languages: ClassVar[tuple[str, ...]] = ("cmn-Hans",)

    def __post_init__(self) -> None:
        """Validate the decision."""
        if self.decision not in DECISIONS:
            raise InputError(f"decision {self.decision!r}: choose one of {', '.join(DECISIONS)}")

    def files(self) -> Sequence[str]:
        """The one data set."""
        return (self.file,)

    def load(self, source: Source) -> Loaded:
        """Read the questions.

        Raises:
            DataError: there is no such data set; a question has fewer than three options, an answer that is not the
                index of one, or a word that no option contains.
        """
        row = _Row()
        fields = {"options": row.options, "answer": row.answer, "word": row.word}
        rows = source.rows(self.file, fields)
        return Questions([Question(r["word"], tuple(r["options"]), r["answer"]) for r in rows], self)


@dataclass
class _Row:
    """Checks of one row: the options are read first, then the other fields are compared with them."""

    read: list[str] = field(default_factory=list)

    def options(self, value: Any) -> list[str]:
        self.read = texts(value)
        if len(self.read) < 3:
            raise ValueError(f"has {len(self.read)} sentences: the odd one out is one of at least 3")
        return self.read

    def answer(self, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < len(self.read):
            raise ValueError(f"is {value!r:.40}: give the index of an option, 0 to {len(self.read) - 1}")
        return value

    def word(self, value: Any) -> str:
        if not text(value) or not any(value in option for option in self.read):
            raise ValueError(f"is {value!r:.40}, which is in none of the options")
        return str(value)


@dataclass(frozen=True)
class Questions(Loaded):
    """Questions in memory."""

    questions: Sequence[Question]
    task: OddSense

    def score(self, embedder: Embedder, seed: int) -> Scores:
        """Answer every question by each rule of `DECISIONS`; the seed is not used."""
        options = [option for q in self.questions for option in q.options]
        words = [(q.word, self.task.occurrence) for q in self.questions for _ in q.options]
        rows = iter(word_rows(embedder, options, words))
        vectors = [_stack([next(rows) for _ in q.options]) for q in self.questions]
        answers = np.array([q.answer for q in self.questions])
        chosen = {rule: np.array([_choose(odd, v) for v in vectors]) for rule, odd in DECISIONS.items()}
        accuracy = {rule: _accuracy(picks, answers) for rule, picks in chosen.items()}
        lacking = [q.word for q, v in zip(self.questions, vectors, strict=True) if v is None]
        main = chosen[self.task.decision]
        asked = len(vectors) - len(lacking)
        metrics = {"accuracy": accuracy[self.task.decision], **{f"accuracy_{r}": a for r, a in accuracy.items()}}
        return Scores(
            metrics["accuracy"],
            {**metrics, "questions": len(vectors), "asked": asked},
            {"correct": (main == answers).astype(np.float64)},
            _notes(len(vectors), lacking, asked - int((main != UNDECIDED).sum())),
        )


def _stack(rows: Sequence[Array | None]) -> Array | None:
    vectors = [np.asarray(r, np.float64) for r in rows if r is not None]
    return np.stack(vectors) if len(vectors) == len(rows) else None


def _choose(odd: Callable[[Array], Array], vectors: Array | None) -> int:
    return UNDECIDED if vectors is None else winner(odd(vectors))


def _accuracy(chosen: Array, answers: Array) -> float:
    return float((chosen == answers).mean()) if (chosen != UNDECIDED).any() else math.nan


def _notes(count: int, lacking: Sequence[str], undecided: int) -> tuple[str, ...]:
    notes = []
    if lacking:
        some = ", ".join(lacking[:8]) + (" ..." if len(lacking) > 8 else "")
        notes.append(
            f"{len(lacking)} of {count} questions cannot be asked, since an option lacks the word or was cut before "
            f"it; they count as wrong: {some}"
        )
    if undecided:
        notes.append(
            f"in {undecided} of {count} questions no option stands out; they count as wrong, or make the score NaN "
            "where that is all of them"
        )
    return tuple(notes)


TASKS: tuple[Task, ...] = (
    OddSense("SLPWC", "zh/wordsense/slpwc"),
    OddSense("WSD", "zh/wordsense/wsd_questions"),
)
