"""Conditional semantic textual similarity (C-STS): how similar two texts are under a condition."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..errors import DataError
from .pairs import score_pairs
from .rows import Source, number, text
from .scores import cosines
from .task import Array, Embedder, Loaded, Scores, Task, as_read

UNLABELLED = -1.0
"""The value that the test split has instead of labels."""
VALIDATION = "the validation split: the papers' tables are of the test split (CSTS.test)"


@dataclass(frozen=True)
class Csts(Task):
    """Rows of "sentence1", "sentence2", "condition" and "label" (1 to 5), the columns of the official files.

    Both texts are embedded under the row's condition: the method's template must hold {condition}, as that of
    `prompt("csts")` does (BeLLM, section 5.1). The main score is Spearman's correlation of cosine and label.

    The data may not be redistributed unencrypted: the authors give out csts_train.csv, csts_validation.csv and
    csts_test.csv (princeton-nlp/c-sts); put them into en/csts/ of the data folder (docs/data.md).

    Source: Deshpande et al. 2023.

    Args:
        file: name of the data set, as in "en/csts/csts_validation", with or without its file ending.
    """

    file: str

    group = "csts"
    metric = "cosine_spearman"

    def files(self) -> Sequence[str]:
        """The one file."""
        return (self.file,)

    def load(self, source: Source) -> ConditionalPairs:
        """Read the rows; those of the test split have no labels.

        Raises:
            DataError: there is no such file, it has fewer than two rows, or only some of its rows have labels.
        """
        columns = dict.fromkeys(("sentence1", "sentence2", "condition"), text)
        rows = source.rows(self.file, columns, {"label": number})
        labels = [UNLABELLED if r["label"] is None else r["label"] for r in rows]
        without = labels.count(UNLABELLED)
        if len(rows) < 2 or 0 < without < len(rows):
            raise DataError(
                f"{self.file}: {without} of {len(rows)} rows have no label: give 2 or more, all or none labelled"
            )
        return ConditionalPairs(
            tuple(as_read(r["sentence1"]) for r in rows),
            tuple(as_read(r["sentence2"]) for r in rows),
            tuple(r["condition"] for r in rows),
            None if without else np.array(labels),
            (VALIDATION,) if self.file.endswith("validation") else (),
        )


class CstsTest(Csts):
    """The test split, whose labels are hidden: its similarities are sent to the authors (`submission`)."""

    group = "csts-test"


@dataclass(frozen=True)
class ConditionalPairs(Loaded):
    """n pairs, each under a condition.

    Args:
        left: the first texts.
        right: the second texts.
        conditions: one condition per pair.
        gold: labels (n,); None if they are hidden.
        notes: remarks for the reader of the score.
    """

    left: tuple[str, ...]
    right: tuple[str, ...]
    conditions: tuple[str, ...]
    gold: Array | None
    notes: tuple[str, ...] = ()

    def vectors(self, embedder: Embedder) -> tuple[Array, Array]:
        """Vectors of the first and of the second texts (n, D each), embedded with their conditions."""
        both = embedder.encode((*self.left, *self.right), conditions=(*self.conditions, *self.conditions))
        return both[: len(self.left)], both[len(self.left) :]

    def score(self, embedder: Embedder, seed: int) -> Scores:
        """Score an encoder; the seed is not used. Without labels the score is NaN, and the items are the similarities.

        Raises:
            InputError: the method's template holds no {condition}.
        """
        vectors = self.vectors(embedder)
        if self.gold is None:
            note = "undefined: the labels are not public; send in the similarities"
            undefined = {"cosine_spearman": math.nan, "cosine_pearson": math.nan}
            return Scores(math.nan, undefined, {"predicted": cosines(*vectors)}, (*self.notes, note))
        scores = score_pairs(*vectors, self.gold)
        return replace(scores, notes=(*self.notes, *scores.notes))


def submission(similarities: Array) -> str:
    """The similarities (n,) of the test split in the format that the authors' server expects.

    A JSON object that maps each row number, from 0 and as a string, to its similarity: {"0": 0.97, "1": 0.95, ...},
    with all 4,732 rows of the test split (princeton-nlp/c-sts, README.md, "Submitting Test Results", and
    make_test_submission.py, which uploads it).

    Raises:
        DataError: a similarity is not a finite number.
    """
    if not np.isfinite(similarities).all():
        at = int(np.flatnonzero(~np.isfinite(similarities))[0])
        raise DataError(f"the similarity of row {at} is {similarities[at]}: it cannot be sent in")
    return json.dumps({str(i): float(s) for i, s in enumerate(similarities)})


TASKS: tuple[Csts, ...] = (
    Csts("CSTS", "en/csts/csts_validation"),
    CstsTest("CSTS.test", "en/csts/csts_test"),
)
