"""Senses by their nearest vector: by hand, against scikit-learn, in bounded memory; what is refused."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier
from tests.tasks.planted import Planted

from afterword import Encoder
from afterword.errors import BadRow
from afterword.tasks.coarsewsd import TASKS, NearestSense
from afterword.tasks.rows import Folder, label, read_rows, text

TASK = NearestSense("Toy", "toy")


def row(sentence: str, sense: str, split: str = "train", index: int = 0, word: str = "bank") -> dict[str, Any]:
    return {"word": word, "text": sentence, "index": index, "sense": sense, "split": split}


def folder(path: Path, *rows: Any) -> Folder:
    (path / "toy.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    return Folder(path)


VECTORS = {
    "bank 1": [2.0, 0.0], "bank 2": [0.0, 6.0], "bank 3": [8.0, 0.0],  # money: (10, 6), river: (-1, 1)
    "bank 4": [-1.0, 1.0],
    "bank 5": [1.0, 1.0], "bank 6": [-1.0, 9.0], "bank 7": [-3.0, 1.0],
    "jam 1": [1.0, 0.0], "jam 2": [0.0, 1.0], "jam 3": [5.0, 1.0], "jam 4": [1.0, 1.0],
}  # fmt: skip
ROWS = [
    *(row(f"bank {i}", "money") for i in (1, 2, 3)),
    row("bank 4", "river"),
    row("bank 5", "money", "test"),  # right
    row("bank 6", "money", "test"),  # nearer to river
    row("bank 7", "river", "test"),  # right
    row("jam 1", "food", word="jam"),
    row("jam 2", "traffic", word="jam"),
    row("jam 3", "food", "test", word="jam"),  # right
]


def test_by_hand(tmp_path: Path) -> None:
    scores = TASK.run(Planted(VECTORS), folder(tmp_path, *ROWS))
    assert scores.main == scores.metrics["accuracy"] == pytest.approx(3 / 4)
    assert scores.metrics["words"] == pytest.approx({"bank": 2 / 3, "jam": 1})
    assert scores.metrics["accuracy_macro"] == pytest.approx(5 / 6)
    assert scores.metrics["recall_macro"] == pytest.approx((1 / 2 + 1 + 1) / 3)
    assert scores.items["correct"].tolist() == [1, 0, 1, 1] and scores.notes == ()


def test_what_cannot_be_tried_counts_as_wrong_and_is_said(tmp_path: Path) -> None:
    more = [row("jam 4", "food", "test", word="jam"), row("jam 3", "session", "test", word="jam")]
    scores = TASK.run(Planted(VECTORS), folder(tmp_path, *ROWS, *more))
    assert scores.main == pytest.approx(3 / 6)
    assert [n[:35] for n in scores.notes] == [
        "1 of 6 test occurrences have a sens",
        "1 of 6 test occurrences are as near",
    ]


def test_a_word_that_is_cut_off(tmp_path: Path) -> None:
    far = "so " * 60 + "bank"
    rows = [
        row("money in the bank", "money", index=3), row(far, "money", index=60),
        row("boats by the bank", "river", index=3),
        row("more money in the bank", "money", "test", index=4), row(far, "river", "test", index=60),
    ]  # fmt: skip
    encoder = Encoder.load("afterword-mini", "classical", max_length=32)
    scores = TASK.run(encoder, folder(tmp_path, *rows))
    assert scores.items["correct"].tolist() == [1, 0]
    dropped, cut = scores.notes
    assert dropped.startswith("1 train occurrences were cut off") and cut.startswith("1 of 2 test occurrences were cut")


def test_equal_vectors_give_nan_and_the_reason(tmp_path: Path) -> None:
    scores = TASK.run(Planted({text: [0.1, 0.7] for text in VECTORS}), folder(tmp_path, *ROWS))
    assert math.isnan(scores.main) and math.isnan(scores.metrics["words"]["jam"])
    assert scores.notes[0].startswith("4 of 4 test occurrences are as near to one sense as to another")


def test_the_index_says_which_occurrence_is_meant(tmp_path: Path) -> None:
    planted = Planted({"a  bank by bank .": [1.0], "bank": [1.0]})
    rows = [row("a  bank by bank .", "river", index=3), row("bank", "river", "test")]
    TASK.run(planted, folder(tmp_path, *rows))
    assert planted.asked == [[("a  bank by bank .", (11, 15))], [("bank", (0, 4))]]


def test_a_real_encoder_against_scikit_learn(data: Path, tmp_path: Path) -> None:
    checks = {"word": text, "text": text, "index": int, "sense": label, "split": text}
    rows = [r for r in read_rows(data / "en/coarsewsd20/all.jsonl.gz", checks) if r["word"] == "digit"]
    encoder = Encoder.load("afterword-mini", "classical")
    scores = TASK.run(encoder, folder(tmp_path, *rows))
    before = [" ".join([*r["text"].split(" ")[: r["index"]], ""]) for r in rows]
    spans = [(len(b), len(b) + len("digit")) for b in before]
    vectors = np.asarray(encoder.encode_words([r["text"] for r in rows], spans), np.float64)
    train = np.array([r["split"] == "train" for r in rows])
    senses = np.array([r["sense"] for r in rows])
    names = sorted(set(senses))
    means = [vectors[train & (senses == s)].mean(0) for s in names]
    nearest = KNeighborsClassifier(1, metric="cosine").fit(means, names)
    correct = nearest.predict(vectors[~train]) == senses[~train]
    assert scores.items["correct"].tolist() == correct.tolist() and scores.main == pytest.approx(correct.mean())
    assert len(correct) == 42 and correct.mean() > 0.6


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        (row("bank", "x", index=1), "'index' is 1: the text has the tokens 0 to 0"),
        (row("the bank", "x"), "'index' is 0, where 'the' stands and not 'bank'"),
        (row("bank", "x", "dev"), "'split' is 'dev': give 'train' or 'test'"),
        ({"word": "bank"}, "has no field 'text'"),
    ],
)
def test_bad_rows_are_named_by_file_and_line(tmp_path: Path, bad: Any, problem: str) -> None:
    with pytest.raises(BadRow) as e:
        TASK.load(folder(tmp_path, ROWS[0], bad))
    assert problem in str(e.value) and str(e.value).startswith(f"{tmp_path / 'toy.jsonl'}:2: ")


def test_the_data_as_they_are(data: Path) -> None:
    words = TASKS[0].load(Folder(data)).words
    assert len(words) == 20
    assert sum(len(train) for train, _ in words.values()) == 23_370
    assert sum(len(test) for _, test in words.values()) == 10_196
    assert all(o.text[slice(*o.span)] == o.word for _, test in words.values() for o in test)
