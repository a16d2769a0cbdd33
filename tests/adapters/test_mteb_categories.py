"""Every category on a few rows: scores worked out by hand, or against scikit-learn and scipy."""

import math
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr
from sklearn.cluster import MiniBatchKMeans
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import v_measure_score
from tests.adapters.tables import Table, at, write

from afterword.adapters.mteb_categories import (
    Classification,
    Clustering,
    PairClassification,
    Reranking,
    Retrieval,
    Similarity,
)
from afterword.errors import BadRow, DataError, MissingDataset

pytest.importorskip("mteb")


def pairs(*degrees: float, **columns: list) -> list[dict]:
    """Pairs of texts that stand so many degrees apart from "0"."""
    names = [f"{d:g}" for d in degrees]
    return [
        {"sentence1": "0", "sentence2": name, **{k: v[i] for k, v in columns.items()}} for i, name in enumerate(names)
    ]


def angles(*degrees: float) -> Table:
    return Table({f"{d:g}": at(d) for d in (0, *degrees)})


def test_similarity(tmp_path: Path):
    gold, apart = [5, 3, 4, 0, 1], (10, 30, 35, 80, 60)
    data = write(tmp_path, sts=pairs(*apart, score=gold))
    task, table = Similarity("Toy", "sts", "STSB"), angles(*apart)
    scores = task.run(table, data)
    cosines = np.cos(np.radians(apart))
    assert scores.main == pytest.approx(spearmanr(gold, cosines)[0]) == 0.9  # 1 - 6 * 2 / (5 * 24): one pair swapped
    assert scores.metrics["cosine_pearson"] == pytest.approx(pearsonr(gold, cosines)[0], abs=1e-6)
    assert scores.metrics["cosine_spearman"] == scores.main and "main_score" not in scores.metrics
    assert scores.items["gold"].tolist() == gold
    np.testing.assert_allclose(scores.items["similarity"], cosines, atol=1e-6)
    assert set(table.asked) == set(task.load(data).texts()) == {"0", "10", "30", "35", "60", "80"}
    assert scores.notes == ("sample: 5 rows, where mteb's STSB (test) has 1,361; not a score of that task",)


def test_vectors_that_are_all_equal_have_no_score(tmp_path: Path):
    data = write(tmp_path, sts=pairs(1, 2, score=[1, 2]), pair=pairs(1, 2, label=[0, 1]))
    table = Table(dict.fromkeys(["0", "1", "2"], (0.5, 0.5)))
    for task in (Similarity("A", "sts"), PairClassification("B", "pair")):
        scores = task.run(table, data)
        assert math.isnan(scores.main) and math.isnan(scores.metrics[task.paper_metric])
        assert "all vectors are equal: they tell no texts apart, and no score is defined" in scores.notes


def test_pair_classification(tmp_path: Path):
    """One of five pairs stands on the wrong side of every threshold."""
    apart, labels = (5, 20, 40, 60, 85), [1, 1, 0, 1, 0]
    data = write(tmp_path, pair=pairs(*apart, label=labels))
    task, table = PairClassification("Toy", "pair", "Ocnli", "validation"), angles(*apart)
    scores = task.run(table, data)
    assert scores.main == scores.metrics["max_accuracy"] == scores.metrics["cosine_accuracy"] == 0.8
    assert scores.metrics["cosine_ap"] == pytest.approx((1 + 1 + 3 / 4) / 3)
    assert set(table.asked) == set(task.load(data).texts())


def test_classification(tmp_path: Path):
    """With fewer than 32 texts of each class, all are learned from, ten times."""
    random = np.random.default_rng(0)
    labels = ["no", "yes"] * 20
    places = {f"{i} {name}": random.normal((name == "yes", 0), 1.0) for i, name in enumerate(labels * 2)}
    train, test = list(places)[:40], list(places)[40:]
    rows = [[{"text": t, "label": t.split()[1]} for t in part] for part in (train, test)]
    data = write(tmp_path, toy__train=rows[0], toy__test=rows[1])
    task, table = Classification("Toy", "toy"), Table(places)
    scores = task.run(table, data)
    fitted = LogisticRegression(max_iter=100, random_state=42).fit(
        np.array([places[t] for t in train], np.float32), [t.split()[1] for t in train]
    )
    right = fitted.predict(np.array([places[t] for t in test], np.float32)) == [t.split()[1] for t in test]
    assert 0.5 < right.mean() < 1
    assert scores.main == pytest.approx(right.mean()) and scores.metrics["accuracy"] == scores.main
    assert scores.items["correct"].tolist() == right.tolist()
    assert set(task.load(data).texts()) == set(test) and set(table.asked) == {*train, *test}
    assert scores.notes == ("mteb has no data set Toy: its plain AbsTaskClassification was run on toy",)


def blobs() -> dict[str, np.ndarray]:
    random = np.random.default_rng(1)
    return {f"{i}": random.normal((3 * np.cos(i % 5), 3 * np.sin(i % 5)), 1.2).astype(np.float32) for i in range(200)}


def test_clustering(tmp_path: Path):
    places = blobs()
    labels = [f"class {int(name) % 5}" for name in places]
    rows = [{"text": t, "label": name} for t, name in zip(places, labels, strict=True)]
    task, table, data = Clustering("Toy", "toy"), Table(places), write(tmp_path, toy=rows)
    found = [task.run(table, data, seed=seed).main for seed in (0, 1)]
    for seed, score in enumerate(found):
        means = MiniBatchKMeans(n_clusters=5, batch_size=500, n_init="auto", random_state=42 + seed)
        assert score == pytest.approx(v_measure_score(labels, means.fit(np.stack(list(places.values()))).labels_))
    assert found[0] != found[1] and 0.1 < found[0] < 1
    assert task.load(data).texts() == list(places)


def test_reranking(tmp_path: Path):
    """First query: right answers on places 1 and 3 of 3; second: on place 2 of 2. The queries share a candidate."""
    places = {"q": at(0), "r": at(90), "near": at(10), "far": at(50), "middle": at(30), "on r": at(85)}
    rows = [
        {"query": "q", "positive": ["near", "far"], "negative": ["middle"]},
        {"query": "r", "positive": ["far"], "negative": ["on r"]},
    ]
    task, table, data = Reranking("Toy", "toy"), Table(places), write(tmp_path, toy=rows)
    scores = task.run(table, data)
    assert scores.main == scores.metrics["map_at_1000"] == pytest.approx(((1 + 2 / 3) / 2 + 1 / 2) / 2, abs=1e-5)
    assert set(table.asked) == set(task.load(data).texts()) == set(places)


def library(folder: Path, **changes):
    """Three documents and two queries, in the form of SciFact; a query of the training split is left out."""
    (folder / "lib").mkdir(parents=True, exist_ok=True)
    parts = {
        "corpus": [
            {"id": "a", "title": "Cats", "text": " they sit "},
            {"id": "b", "title": "", "text": "dogs run"},
            {"id": "c", "text": "rain falls"},
        ],
        "queries": [
            {"id": "1", "text": "what sits", "split": "test"},
            {"id": "2", "text": "what runs", "split": "test"},
            {"id": "3", "text": "learned from", "split": "train"},
        ],
        "qrels": [
            {"query": "1", "doc": "a", "score": 1, "split": "test"},
            {"query": "2", "doc": "b", "score": 1, "split": "test"},
            {"query": "2", "doc": "c", "score": 0, "split": "test"},
            {"query": "3", "doc": "c", "score": 1, "split": "train"},
        ],
        **changes,
    }
    data = write(folder, **{f"lib/{name}": rows for name, rows in parts.items()})
    return Retrieval("Toy", "lib", identifier="id", document="doc"), data


def test_retrieval(tmp_path: Path):
    """The first query finds its document first, the second on the third place: nDCG 1 and 1 / log2(4)."""
    task, data = library(tmp_path)
    places = {
        "Cats  they sit": at(0), "dogs run": at(80), "rain falls": at(45), "what sits": at(5), "what runs": at(10)
    }  # fmt: skip
    table = Table(places)
    scores = task.run(table, data)
    assert scores.main == scores.metrics["ndcg_at_10"] == pytest.approx((1 + 1 / 2) / 2, abs=1e-5)
    assert scores.metrics["recall_at_1"] == 0.5 and scores.metrics["recall_at_1000"] == 1
    assert scores.notes[0] == "the corpus has 3 documents: recall_at_1000 is 1, whatever the vectors"
    assert set(table.asked) == set(task.load(data).texts()) == set(places)
    assert not any(name.startswith("nauc") for name in scores.metrics)


def test_data_that_does_not_fit_together_is_named_by_file_and_line(tmp_path: Path):
    given = {"text": "x", "split": "test"}
    cases = [
        ({"corpus": []}, DataError, "corpus.jsonl has no rows"),
        (
            {"corpus": [{"id": "a", "text": "x"}, {"id": "a", "text": "y"}]},
            BadRow, r"corpus.jsonl:2: 'id' is 'a', which a row before has too",
        ),
        ({"queries": [{"id": "1", **given}, {"id": "1", **given}]}, BadRow, "queries.jsonl:2: 'id' is '1'"),
        (
            {"qrels": [{"query": "1", "doc": "z", "score": 1}]},
            BadRow, "qrels.jsonl:1: 'doc' is 'z', which is no document of the corpus",
        ),
        ({"qrels": [{"query": "9", "doc": "a", "score": 1}]}, DataError, "lib/qrels: the query '9' is not in lib/quer"),
        ({"qrels": [{"query": "1", "doc": "a", "score": 0.5}]}, BadRow, "'score' is 0.5, not a whole number from 0"),
        (
            {"qrels": [{"query": "1", "doc": "a", "score": 1}, {"query": "2", "doc": "a", "score": 0}]},
            DataError, "1 of 2 queries of lib/queries have no relevant document, '2' for one",
        ),
        ({"queries": [{"id": "3", "text": "x", "split": "train"}], "qrels": [
            {"query": "3", "doc": "a", "score": 1, "split": "train"}]}, DataError, "none is of the split 'test'"),
    ]  # fmt: skip
    for i, (changes, kind, problem) in enumerate(cases):
        task, data = library(tmp_path / str(i), **changes)
        with pytest.raises(kind, match=problem):
            task.load(data)


def test_rows_that_cannot_be_scored_are_refused(tmp_path: Path):
    data = write(
        tmp_path,
        one=pairs(1, 2, score=[1, 1], label=[1, 1]),
        odd=pairs(1, 2, score=["good", 1], label=[0, 2]),
        texts=[{"text": "a", "label": "x"}, {"text": "b", "label": "x"}],
        both__train=[{"text": "a", "label": "x"}, {"text": "b", "label": "x"}],
        both__test=[{"text": "a", "label": "x"}, {"text": "b", "label": "y"}],
        ranks=[{"query": "q", "positive": [], "negative": ["x"]}],
    )
    cases = [
        (Similarity("A", "one"), DataError, "one: all 2 rows have the score 1.0: at least two are needed"),
        (Similarity("A", "odd"), BadRow, r"odd.jsonl:1: 'score' is 'good', not a number"),
        (Similarity("A", "texts"), BadRow, r"texts.jsonl:1: has no field 'sentence1', only text, label"),
        (PairClassification("A", "one"), DataError, "all 2 rows have the label 1: at least two are needed"),
        (PairClassification("A", "odd"), BadRow, "odd.jsonl:2: 'label' is 2, not 0 or 1"),
        (Clustering("A", "texts"), DataError, "texts: all 2 rows have the label 'x'"),
        (Classification("A", "both"), DataError, "both.train: all 2 rows have the label 'x'"),
        (Classification("A", "one"), MissingDataset, "one.train"),
        (Reranking("A", "ranks"), BadRow, r"ranks.jsonl:1: 'positive' is \[\], not a list of strings"),
    ]
    for task, kind, problem in cases:
        with pytest.raises(kind, match=problem):
            task.load(data)
