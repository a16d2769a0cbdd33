"""Conditional pairs that are written here: the data set itself may not be passed on."""

import csv
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from afterword import Encoder
from afterword.errors import InputError
from afterword.methods import classical, prompt
from afterword.tasks.csts import TASKS, Csts, CstsTest, submission
from afterword.tasks.rows import Folder

ROWS = [
    ("A red car, parked", "A red bus at a stop", "the colour", 5),
    ("A red car, parked", "A red bus at a stop", "the kind of vehicle", 1),
    ('The "big" dog runs', "A small dog sleeps", "the animal", 4),
    ('The "big" dog runs', "A small dog sleeps", "what it does", 2),
]


def write(
    folder: Path, name: str, labels: Sequence[object], header: str = "sentence1,sentence2,condition,label"
) -> Folder:
    (folder / "en" / "csts").mkdir(parents=True, exist_ok=True)
    with (folder / "en" / "csts" / f"{name}.csv").open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(header.split(","))
        out.writerows(
            [*row[:3], *([label] if "label" in header else [])] for row, label in zip(ROWS, labels, strict=True)
        )
    return Folder(folder)


class Weighed:
    """Bags of letters, of which those of the condition count for more."""

    def encode(self, texts: Sequence[str], /, *, conditions: Sequence[str] | None = None) -> np.ndarray:
        assert conditions is not None
        return np.array([[t.count(c) * (1 + 3 * (c in k)) for c in "abcdehiklrstu"]
                         for t, k in zip(texts, conditions, strict=True)], np.float32)  # fmt: skip


def test_both_texts_are_read_under_the_condition(tmp_path: Path):
    source = write(tmp_path, "csts_validation", [5, 1, 4, 2])
    scores = TASKS[0].run(Weighed(), source)
    a, b, conditions, labels = (list(column) for column in zip(*ROWS, strict=True))
    u, v = Weighed().encode(a, conditions=conditions), Weighed().encode(b, conditions=conditions)
    cosine = (u * v).sum(1) / np.linalg.norm(u, axis=1) / np.linalg.norm(v, axis=1)
    assert len(set(cosine)) == 4
    assert scores.main == pytest.approx(stats.spearmanr(cosine, labels).statistic)
    assert scores.metrics["cosine_pearson"] == pytest.approx(stats.pearsonr(cosine, labels).statistic)
    assert scores.items["similarity"] == pytest.approx(cosine, abs=1e-6) and scores.items["gold"].tolist() == labels


def test_an_encoder_needs_a_template_with_the_condition(tmp_path: Path):
    source = write(tmp_path, "csts_validation", [5, 1, 4, 2])
    encoder = Encoder.load("afterword-mini", prompt("csts"))
    scores = TASKS[0].run(encoder, source)
    assert -1 <= scores.main <= 1
    texts, conditions = [row[0] for row in ROWS], [row[2] for row in ROWS]
    first = encoder.encode(texts, conditions=conditions), encoder.encode([r[1] for r in ROWS], conditions=conditions)
    assert scores.items["similarity"] == pytest.approx(np.diag(encoder.similarity(*first)), abs=1e-5)
    write(tmp_path, "csts_test", [-1] * 4)
    for task in TASKS:
        with pytest.raises(InputError, match=r"the template holds no \{condition\}"):
            task.run(replace(encoder, method=classical()), source)


@pytest.mark.parametrize("header", ["sentence1,sentence2,condition,label", "sentence1,sentence2,condition"])
def test_the_test_split_is_sent_in(tmp_path: Path, header: str):
    source = write(tmp_path, "csts_test", [-1] * 4, header)
    pairs = TASKS[1].load(source)
    assert pairs.gold is None and isinstance(TASKS[1], CstsTest)
    scores = pairs.score(Weighed(), 0)
    assert math.isnan(scores.main) and "send in the similarities" in scores.notes[0]
    sent = json.loads(submission(scores.items["predicted"]))
    labelled = TASKS[0].run(Weighed(), write(tmp_path, "csts_validation", [5, 1, 4, 2]))
    assert "the validation split" in labelled.notes[0]
    mine = Csts("mine", "en/csts/mine").run(Weighed(), write(tmp_path, "mine", [5, 1, 4, 2]))
    assert mine.notes == () and mine.main == labelled.main
    assert list(sent) == ["0", "1", "2", "3"] and list(sent.values()) == labelled.items["similarity"].tolist()
