"""Transfer: what a linear classifier can read from sentence vectors that nothing was trained for."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError, InputError
from . import classifier
from .rows import Source, label, text
from .task import Array, Embedder, Loaded, Scores, Task, as_read, embed

Classes = NDArray[np.integer]

NESTED, BY_FOLDS, BY_SPLIT = ("all",), ("train", "test"), ("train", "dev", "test")


@dataclass(frozen=True)
class Transfer(Task):
    """Rows of "text", "label" and "split", classified.

    The splits that the rows name decide the protocol, as in SentEval (BeLLM, section 5.2; facebookresearch/SentEval,
    binary.py, trec.py, mrpc.py, sst.py): "all" is cross-validated, the regularisation chosen by folds within each
    training part (MR, CR, SUBJ, MPQA); of "train" and "test" it is chosen by folds of train (TREC, MRPC); of "train",
    "dev" and "test" on dev (SST-2). Rows are put in SentEval's order, by number of words and label, so that the folds
    are of the same rows. `classifier` says how the classifier is trained and how that differs from SentEval.

    The accuracy is that of all test rows. Of a cross-validation SentEval takes the mean of the folds' accuracies, each
    rounded: folds differ by a row at most, the result by less than 0.01 %.

    Args:
        file: the data set, as "en/transfer/mr"; a path with its ending will do.
        folds: of a cross-validation.
    """

    file: str
    folds: int = 10

    group = "transfer"
    metric = "accuracy"
    libraries = ("scikit-learn",)
    seeded = True
    columns: ClassVar[tuple[str, ...]] = ("text",)

    def __post_init__(self) -> None:
        """Refuse what is no cross-validation."""
        if self.folds < 2:
            raise InputError(f"folds={self.folds}: give at least 2")

    def files(self) -> Sequence[str]:
        """The one file."""
        return (self.file,)

    def load(self, source: Source) -> Labelled:
        """Read the rows.

        Raises:
            DataError: it is not there; splits are missing; a class has fewer rows than there are folds, or is alone;
                no test row is of a class that is trained on.
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
        made = Labelled(
            tuple(tuple(r[c] for c in self.columns) for r in rows),
            tuple(r["label"] for r in rows),
            tuple(sizes[s] for s in splits),
            self.folds,
        )
        _check(self.file, made)
        return made


class TransferPairs(Transfer):
    """Rows of "sentence1", "sentence2", "label" and "split": vectors u and v are classified by |u - v| and u * v."""

    columns = ("sentence1", "sentence2")


@dataclass(frozen=True)
class Labelled(Loaded):
    """n labelled texts or pairs of texts, in SentEval's order, split by split.

    Args:
        rows: of each, one text or two.
        labels: n of them.
        sizes: how many rows each split has: of one that is cross-validated; of train and test; of train, dev and test.
        folds: of a cross-validation.
    """

    rows: tuple[tuple[str, ...], ...]
    labels: tuple[str, ...]
    sizes: tuple[int, ...]
    folds: int

    def texts(self) -> Sequence[str]:
        """All texts, as they are read."""
        return [as_read(t) for row in self.rows for t in row]

    def features(self, embedder: Embedder) -> Array:
        """What is classified: vectors (n, D), or |u - v| and u * v side by side (n, 2 D)."""
        vectors = embed(embedder, [t for row in self.rows for t in row])
        if len(self.rows[0]) == 1:
            return vectors
        u, v = vectors[::2], vectors[1::2]
        return np.concatenate([np.abs(u - v), u * v], axis=1)

    def score(self, embedder: Embedder, seed: int) -> Scores:
        """Train and test.

        Args:
            embedder: makes vectors.
            seed: of the folds: 0 = SentEval's own.
        """
        x = self.features(embedder)
        if not np.isfinite(x).all():
            bad = int((~np.isfinite(x).all(1)).sum())
            return Scores(
                math.nan, {"accuracy": math.nan}, notes=(f"undefined: {bad} of {len(x)} vectors are not finite",)
            )
        names, y = np.unique(self.labels, return_inverse=True)
        with classifier.one_thread():
            predicted, dev = self._classify(x, y, seed)
        gold = y[len(y) - len(predicted) :]
        correct = predicted == gold
        metrics = {"accuracy": float(correct.mean()), "dev_accuracy": dev}
        if len(self.rows[0]) == 2 and list(names) == ["0", "1"]:
            metrics["f1"] = _f1(predicted == 1, gold == 1)
        return Scores(metrics["accuracy"], metrics, {"correct": correct})

    def _classify(self, x: Array, y: Classes, seed: int) -> tuple[Classes, float]:
        if len(self.sizes) == 1:
            return classifier.nested(x, y, self.folds, seed)
        if len(self.sizes) == 2:
            return classifier.by_folds(x, y[: self.sizes[0]], self.folds, seed)
        return classifier.by_split(x, y[: sum(self.sizes[:2])], self.sizes[0])


def _f1(predicted: NDArray[np.bool_], gold: NDArray[np.bool_]) -> float:
    """Of the positive class; 0 where it is never found."""
    return float(2 * (predicted & gold).sum() / (predicted.sum() + gold.sum()))


def _check(file: str, data: Labelled) -> None:
    trained = Counter(data.labels[: data.sizes[0]])
    if len(trained) < 2:
        raise DataError(
            f"{file}: all rows to train on have the label {next(iter(trained))!r}: give two classes or more"
        )
    rarest, rows = min(trained.items(), key=lambda found: found[1])
    if len(data.sizes) < 3 and rows < data.folds:
        raise DataError(f"{file}: label {rarest!r} has {rows} rows, fewer than the {data.folds} folds")
    tested = set(data.labels[sum(data.sizes[:-1]) :])
    if not tested & set(trained):
        raise DataError(f"{file}: the test labels {sorted(tested)} are not those of train: is it unlabelled?")


TASKS: tuple[Transfer, ...] = (
    *(Transfer(name, f"en/transfer/{name.lower()}") for name in ("MR", "CR", "SUBJ", "MPQA", "SST2", "TREC")),
    TransferPairs("MRPC", "en/transfer/mrpc"),
)
