"""The authors' own numbers, and pairs whose scores are known."""

import csv
import hashlib
import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from afterword.errors import BadRow, DataError, MissingDataset
from afterword.tasks.pairs import Pairs, score_pairs
from afterword.tasks.rows import Folder


class Hashes:
    """The encoder that senteval_expected.json describes: hashes of words, the later a word the lighter."""

    def encode(self, texts: Sequence[str], /, *, conditions: Sequence[str] | None = None) -> np.ndarray:
        return np.stack([self.one(t) for t in texts])

    def one(self, text: str) -> np.ndarray:
        v = np.zeros(24)
        for k, word in enumerate(text.split()):
            v += [(b - 127.5) / (1 + k) for b in hashlib.sha256(word.encode()).digest()[:24]]
        return v


def rows(left: Sequence[str], right: Sequence[str], gold: Sequence[str], subset: str) -> list[dict[str, object]]:
    """Rows of ours from SentEval's columns; as SentEval does, words apart by one blank, pairs without gold left out."""
    one = " ".join
    return [
        {"sentence1": one(a.split()), "sentence2": one(b.split()), "score": float(g), "subset": subset}
        for a, b, g in zip(left, right, gold, strict=True)
        if g
    ]


def sts12(folder: Path) -> list[dict[str, object]]:
    made = []
    for subset in ("MSRpar", "MSRvid", "SMTeuroparl", "surprise.OnWN", "surprise.SMTnews"):
        pairs = [line.split("\t") for line in (folder / f"STS.input.{subset}.txt").read_text("utf-8").splitlines()]
        gold = (folder / f"STS.gs.{subset}.txt").read_text("utf-8").splitlines()
        made += rows([p[0] for p in pairs], [p[1] for p in pairs], gold, subset)
    return made


def table(folder: Path, files: dict[str, str], columns: tuple[int, int, int], header: bool) -> list[dict[str, object]]:
    made = []
    for split, file in files.items():
        with (folder / file).open(encoding="utf-8", newline="") as lines:
            cells = list(csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))[int(header) :]
        made += rows(*([c[i] for c in cells] for i in columns), split)
    return made


def fixture(downstream: Path, task: str) -> list[dict[str, object]]:
    if task == "STS12":
        return sts12(downstream / "STS" / "STS12-en-test")
    if task == "STSBenchmark":
        files = {split: f"sts-{split}.csv" for split in ("train", "dev", "test")}
        return table(downstream / "STS" / "STSBenchmark", files, (5, 6, 4), header=False)
    files = {"train": "SICK_train.txt", "dev": "SICK_trial.txt", "test": "SICK_test_annotated.txt"}
    return table(downstream / "SICK", files, (1, 2, 3), header=True)


def write(path: Path, found: Sequence[object]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in found))
    return path


@pytest.mark.parametrize("task", ["STS12", "STSBenchmark", "SICKRelatedness"])
def test_scores_are_those_of_the_authors(oracle: Path, tmp_path: Path, task: str):
    expected = json.loads((oracle / "senteval_expected.json").read_text())["results"]
    write(tmp_path / "pairs.jsonl", fixture(oracle / "senteval_fixture" / "downstream", task))
    scores = Pairs(task, "pairs").run(Hashes(), Folder(tmp_path))
    for fork in ("simcse", "ditto"):
        theirs = expected[f"{fork}/{task}"]
        whole, subsets = theirs["all"], {k: v for k, v in theirs.items() if k != "all"}
        for ours, metric in [("cosine_spearman", "spearman"), ("cosine_pearson", "pearson")]:
            assert scores.metrics[ours] == pytest.approx(whole[metric]["all"], abs=1e-12)
            assert scores.metrics[f"{ours}_mean"] == pytest.approx(whole[metric]["mean"], abs=1e-12)
            assert scores.metrics[f"{ours}_weighted_mean"] == pytest.approx(whole[metric]["wmean"], abs=1e-12)
            each = {name: found[metric] for name, found in subsets.items()}
            assert scores.metrics[f"{ours}_by_subset"] == pytest.approx(each, abs=1e-12)
        assert scores.metrics["pairs_by_subset"] == {name: found["nsamples"] for name, found in subsets.items()}
    assert scores.main == scores.metrics["cosine_spearman"] and not scores.notes


def test_each_similarity_is_its_own():
    random = np.random.default_rng(0)
    a, b, gold = random.normal(size=(9, 5)), random.normal(size=(9, 5)), random.normal(size=9)
    metrics = score_pairs(a, b, gold, ["x"] * 9).metrics
    for name, similar in {
        "cosine_spearman": [u @ v / np.sqrt(u @ u * (v @ v)) for u, v in zip(a, b, strict=True)],
        "dot_spearman": [u @ v for u, v in zip(a, b, strict=True)],
        "euclidean_spearman": [-np.linalg.norm(u - v) for u, v in zip(a, b, strict=True)],
        "manhattan_spearman": [-np.linalg.norm(u - v, 1) for u, v in zip(a, b, strict=True)],
    }.items():
        assert metrics[name] == pytest.approx(stats.spearmanr(similar, gold).statistic, abs=1e-12)
    assert set(metrics) == {"cosine_spearman", "cosine_pearson", "dot_spearman", "euclidean_spearman",
                            "manhattan_spearman"}  # fmt: skip


def test_items_give_the_score_again():
    random = np.random.default_rng(1)
    scores = score_pairs(random.normal(size=(20, 3)), random.normal(size=(20, 3)), np.arange(20.0))
    assert scores.main == pytest.approx(stats.spearmanr(scores.items["gold"], scores.items["similarity"]).statistic)


@pytest.mark.parametrize(
    ("a", "gold", "note"),
    [
        (np.ones((3, 2)), [1, 2, 3], "all 3 similarities are 1"),
        (np.outer([0.1, 0.3, 7.0], [0.3, 0.7]).astype(np.float32), [1, 2, 3], "all 3 similarities are 1"),
        (np.array([[1, 0], [np.nan, 1], [2, 3]]), [1, 2, 3], "1 of 3 similarities are not finite"),
        (np.array([[1, 0], [-1, 1], [2, 3]]), [4, 4, 4], "all 3 gold scores are 4"),
    ],
)
def test_an_undefined_score_is_nan_and_says_why(a: np.ndarray, gold: list[float], note: str):
    scores = score_pairs(a, np.array([[0.3, 0.7]] * 3), np.array(gold, float))
    if "similarities are 1" in note:
        scores = score_pairs(a, a, np.array(gold, float))
    assert math.isnan(scores.main) and math.isnan(scores.metrics["cosine_pearson"])
    assert len(scores.notes) == 1 and note in scores.notes[0]


def test_a_subset_of_one_pair_has_no_correlation():
    a, b = np.array([[1.0, 0], [1, 1], [0, 1]]), np.array([[1.0, 0.1], [1, 0], [1, 0.2]])
    metrics = score_pairs(a, b, np.array([3.0, 2, 1]), ["x", "x", "y"]).metrics
    assert [metrics["cosine_spearman"], metrics["cosine_spearman_by_subset"]["x"]] == pytest.approx([1, 1])
    assert math.isnan(metrics["cosine_spearman_by_subset"]["y"]) and math.isnan(metrics["cosine_spearman_mean"])


def test_pairs_of_ones_own(tmp_path: Path):
    path = write(tmp_path / "mine.jsonl", [{"sentence1": "a b", "sentence2": "a b", "score": 5},
                                           {"sentence1": "", "sentence2": "c", "score": "1"}])  # fmt: skip
    by_path = Pairs("mine", str(path)).run(Hashes(), Folder(Path()))
    assert by_path.main == pytest.approx(1) and by_path.items["similarity"][0] == pytest.approx(1)
    loaded = Pairs("mine", "mine").load(Folder(tmp_path))
    assert loaded.texts() == ["a b", ".", "a b", "c"] and Pairs("mine", "mine").files() == ("mine",)


def test_bad_files(tmp_path: Path):
    good = {"sentence1": "a", "sentence2": "b", "score": 1}
    write(tmp_path / "one.jsonl", [good])
    write(tmp_path / "word.jsonl", [good, {**good, "score": "n/a"}])
    write(tmp_path / "other.jsonl", [{"text": "a", "label": 1}])
    for name, error, problem in [
        ("one", DataError, "has 1 pair"),
        ("word", BadRow, r"word.jsonl:2: 'score' is 'n/a', not a number"),
        ("other", DataError, "sentence1"),
        ("none", MissingDataset, "does not exist"),
    ]:
        with pytest.raises(error, match=problem):
            Pairs("mine", name).load(Folder(tmp_path))
