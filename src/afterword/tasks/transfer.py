"""Transfer tasks: a linear classifier on sentence vectors that were not trained for the task."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError, InputError
from . import classifier
from .rows import Source, label, text
from .task import Array, Embedder, Loaded, Scores, Task, as_read, embed

Classes = NDArray[np.integer]

MULTINOMIAL = (
    "one multinomial model of {} classes, as in SentEval's PyTorch branch, which the papers ran; its scikit-learn "
    "branch fits one model per class (one_vs_rest=true)"
)

NESTED, BY_FOLDS, BY_SPLIT = ("all",), ("train", "test"), ("train", "dev", "test")


@dataclass(frozen=True)
class Transfer(Task):
    """Classification of rows with "text", "label" and "split".

    The splits of the rows decide the protocol, as in SentEval (BeLLM, section 5.2; facebookresearch/SentEval,
    binary.py, trec.py, mrpc.py, sst.py). With "all", nested cross-validation: C is chosen by folds within each training
    part (MR, CR, SUBJ, MPQA). With "train" and "test", C is chosen by folds of train (TREC, MRPC). With "train", "dev"
    and "test", C is chosen on dev (SST-2). Rows are sorted as SentEval sorts them, by number of words and label, so
    that folds consist of the same rows. `classifier` documents the training and how it differs from SentEval's.

    The accuracy is that over all test rows. In a cross-validation SentEval averages the rounded accuracies of the
    folds; since folds differ by at most one row, the results differ by less than 0.01 %.

    Args:
        file: name of the data set, as in "en/transfer/mr", with or without its file ending.
        folds: number of folds.
    """

    file: str
    folds: int = 10

    group = "transfer"
    metric = "accuracy"
    libraries = ("scikit-learn",)
    seeded = True
    columns: ClassVar[tuple[str, ...]] = ("text",)

    def __post_init__(self) -> None:
        """Validate the number of folds."""
        if self.folds < 2:
            raise InputError(f"folds={self.folds}: give at least 2")

    def files(self) -> Sequence[str]:
        """The one file."""
        return (self.file,)

    def load(self, source: Source) -> Labelled:
        """Read the rows.

        Raises:
            DataError: there is no such file; splits are missing; there is only one class, or a class has fewer rows
                than there are folds; no test row has a class of the training rows.
        """
        rows = source.rows(self.file, {**dict.fromkeys(self.columns, text), "label": label, "split": text})
        splits = next((s for s in (NESTED, BY_FOLDS, BY_SPLIT) if {r["split"] for r in rows} == set(s)), None)
        if splits is None:
            raise DataError(
                f"{self.file} has the splits {', '.join(sorted({r['split'] for r in rows}))}: give all, or train and "
                "test, or train, dev and test"
            )
        rows.sort(key=lambda r: (splits.index(r["split"]), *(len(r[c].split()) for c in self.columns), r["label"]))
        sizes = Counter(r["split"] for r in rows)
        labelled = Labelled(
            tuple(tuple(r[c] for c in self.columns) for r in rows),
            tuple(r["label"] for r in rows),
            tuple(sizes[s] for s in splits),
            self.folds,
        )
        _check(self.file, labelled)
        return labelled


@dataclass(frozen=True)
class TransferClasses(Transfer):
    """Classification of rows of more than two classes.

    Args:
        one_vs_rest: one logistic regression per class, as SentEval's scikit-learn branch fits them (liblinear); by
            default one multinomial model, as its PyTorch branch, which SimCSE, Ditto and BeLLM ran.
    """

    one_vs_rest: bool = False

    def load(self, source: Source) -> Labelled:
        """Read the rows, as `Transfer` does."""
        return replace(super().load(source), one_vs_rest=self.one_vs_rest)


class TransferPairs(Transfer):
    """Classification of rows with "sentence1", "sentence2", "label" and "split", on the features |u - v| and u * v."""

    columns = ("sentence1", "sentence2")


@dataclass(frozen=True)
class Labelled(Loaded):
    """n labelled texts or pairs of texts, in SentEval's order, split by split.

    Args:
        rows: tuples of one text or two (n).
        labels: class labels (n).
        sizes: numbers of rows: of the only split; of train and test; or of train, dev and test.
        folds: number of folds.
        one_vs_rest: one model per class, instead of one multinomial model.
    """

    rows: tuple[tuple[str, ...], ...]
    labels: tuple[str, ...]
    sizes: tuple[int, ...]
    folds: int
    one_vs_rest: bool = False

    def texts(self) -> Sequence[str]:
        """All texts, with "." for blank ones."""
        return [as_read(t) for row in self.rows for t in row]

    def features(self, embedder: Embedder) -> Array:
        """The classifier's features: vectors (n, D), or |u - v| and u * v concatenated (n, 2 D)."""
        vectors = embed(embedder, [t for row in self.rows for t in row])
        if len(self.rows[0]) == 1:
            return vectors
        u, v = vectors[::2], vectors[1::2]
        return np.concatenate([np.abs(u - v), u * v], axis=1)

    def score(self, embedder: Embedder, seed: int) -> Scores:
        """Train and test.

        Args:
            embedder: an encoder.
            seed: random seed of the folds; 0 = SentEval's own.
        """
        x = self.features(embedder)
        if not np.isfinite(x).all():
            bad = int((~np.isfinite(x).all(1)).sum())
            return Scores(
                math.nan, {"accuracy": math.nan}, notes=(f"undefined: {bad} of {len(x)} vectors are not finite",)
            )
        names, y = np.unique(self.labels, return_inverse=True)
        notes = [] if self.one_vs_rest or len(names) == 2 else [MULTINOMIAL.format(len(names))]
        with classifier.one_thread(), classifier.noted(notes):
            predicted, dev = self._classify(x, y, seed)
        gold = y[len(y) - len(predicted) :]
        correct = predicted == gold
        metrics = {"accuracy": float(correct.mean()), "dev_accuracy": dev}
        if len(self.rows[0]) == 2 and list(names) == ["0", "1"]:
            metrics["f1"] = _f1(predicted == 1, gold == 1)
        return Scores(metrics["accuracy"], metrics, {"correct": correct}, tuple(notes))

    def _classify(self, x: Array, y: Classes, seed: int) -> tuple[Classes, float]:
        if len(self.sizes) == 1:
            return classifier.nested(x, y, self.folds, seed, self.one_vs_rest)
        if len(self.sizes) == 2:
            return classifier.by_folds(x, y[: self.sizes[0]], self.folds, seed, self.one_vs_rest)
        return classifier.by_split(x, y[: sum(self.sizes[:2])], self.sizes[0], self.one_vs_rest)


def _f1(predicted: NDArray[np.bool_], gold: NDArray[np.bool_]) -> float:
    """F1 of the positive class; 0 if it is never predicted correctly."""
    return float(2 * (predicted & gold).sum() / (predicted.sum() + gold.sum()))


def _check(file: str, data: Labelled) -> None:
    trained = Counter(data.labels[: data.sizes[0]])
    if len(trained) < 2:
        raise DataError(
            f"{file}: all rows to train on have the label {next(iter(trained))!r}: give two classes or more"
        )
    rarest, rows = min(trained.items(), key=lambda counted: counted[1])
    if len(data.sizes) < 3 and rows < data.folds:
        raise DataError(f"{file}: label {rarest!r} has {rows} rows, fewer than the {data.folds} folds")
    tested = set(data.labels[sum(data.sizes[:-1]) :])
    if not tested & set(trained):
        raise DataError(f"{file}: the test labels {sorted(tested)} are not those of train: is it unlabelled?")


TASKS: tuple[Transfer, ...] = (
    *(Transfer(name, f"en/transfer/{name.lower()}") for name in ("MR", "CR", "SUBJ", "MPQA", "SST2")),
    TransferClasses("TREC", "en/transfer/trec"),
    TransferPairs("MRPC", "en/transfer/mrpc"),
)
