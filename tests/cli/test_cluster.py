"""The command `cluster`: sizes, typical texts and a label for each row."""

import json
from pathlib import Path

import numpy as np
import pytest
from tests.cli.conftest import Run

from afterword.cli.cluster import page
from afterword.cli.gathered import Gathered
from afterword.search.groups import Clusters

pytest.importorskip("sklearn")

SMALLEST = "the smallest number tried is the best: for finer clusters give a larger one, as --k 3"
TEXTS = [f"the parcel number {i} is late" for i in range(9)] + [f"第{i}家银行的利率上升了" for i in range(5)] + [""]


@pytest.fixture
def vectors(run: Run, tmp_path: Path) -> Path:
    (tmp_path / "t.txt").write_text("\n".join([*TEXTS, TEXTS[0]]) + "\n", "utf-8")
    run("embed", "-m", "afterword-mini", "-i", tmp_path / "t.txt", "-o", tmp_path / "v.parquet")
    return tmp_path / "v.parquet"


def test_two_clusters_of_stored_vectors(run: Run, vectors: Path, tmp_path: Path):
    ended = run("cluster", "-i", vectors, "--k", 2, "-o", tmp_path / "labels.jsonl")
    assert ended.code == 0 and ended.err == f"no vector: 1 of 16 rows of {vectors}\n"
    lines = ended.out.splitlines()
    assert lines[0].split() == ["cluster", "rows", "words", "nearest"] and len(lines) == 11
    assert lines[1].split()[:3] == ["0", "10", "late,"] and lines[6].split()[:3] == ["1", "5", "上升,"]
    rows = [json.loads(line) for line in (tmp_path / "labels.jsonl").read_text("utf-8").splitlines()]
    assert [row["row"] for row in rows] == [*range(14), 15]
    assert [row["cluster"] for row in rows] == [0] * 9 + [1] * 5 + [0]
    assert rows[9]["text"] == TEXTS[9]


def test_auto_tells_what_was_tried_and_the_seed_fixes_all(run: Run, vectors: Path):
    first, again = (run("cluster", "-i", vectors, "--json").out for _ in range(2))
    found = json.loads(first)
    assert first == again and list(found["silhouettes"]) == ["2", "3", "5", "8", "12"]
    assert (found["rows"], found["without_vector"]) == (15, 1)
    assert sum(one["rows"] for one in found["clusters"]) == 15
    page = run("cluster", "-i", vectors).out
    assert page.startswith("silhouette by number of clusters: 2: ")


def test_texts_are_embedded_with_a_model(run: Run, vectors: Path):
    texts = vectors.with_name("t.txt")
    ended = run("cluster", "-m", "afterword-mini", "-i", texts, "--k", 2, "--json")
    stored = json.loads(run("cluster", "-i", vectors, "--k", 2, "--json").out)
    for one in stored["clusters"]:
        one["nearest"] = [{"line": row["row"] + 1, "text": row["text"]} for row in one["nearest"]]
    assert ended.code == 1 and json.loads(ended.out) == stored


@pytest.mark.parametrize(("k", "message"), [("1", "'1': give a number of at least 2, or auto"), ("many", "'many'")])
def test_a_bad_number_is_refused_before_anything_is_read(run: Run, tmp_path: Path, k: str, message: str):
    ended = run("cluster", "-i", tmp_path / "none.parquet", "--k", k)
    assert ended.code == 2 and message in ended.err


def test_fewer_texts_than_clusters(run: Run, vectors: Path):
    ended = run("cluster", "-i", vectors, "--k", 20)
    assert ended.code == 2 and ended.err == "error: 14 different vectors: 20 clusters need 20\n"


def test_each_typical_text_is_shown_once(run: Run, tmp_path: Path):
    texts = ["a dog runs"] * 9 + ["a dog ran", "two dogs run", "the bank is closed", "the bank is open"]
    (tmp_path / "t.txt").write_text("\n".join(texts), "utf-8")
    (tmp_path / "t.csv").write_text("n,text\n" + "".join(f"{i},{text}\n" for i, text in enumerate(texts)))
    run("index", tmp_path / "i", "-m", "afterword-mini", "--method", "classical", "-i", tmp_path / "t.csv", "--id", "n")
    (found,) = run("cluster", "-i", tmp_path / "i", "--k", 2, "--json").rows
    assert sorted(row["text"] for one in found["clusters"] for row in one["nearest"]) == sorted(set(texts))
    assert sum(one["rows"] for one in found["clusters"]) == len(texts)


def test_typical_texts_are_looked_for_behind_many_that_repeat():
    rows = [[n] for n in range(1, 1004)]
    found = Gathered(np.eye(1003), rows, lambda some: ["same" if i < 1000 else f"text {i}" for i in some], 0, False)
    clusters = Clusters(np.zeros(1003, np.int64), np.linspace(1, 0, 1003, dtype=np.float32))
    assert [line.split()[-1] for line in page(found, clusters)[1:]] == ["same", "1000", "1001", "1002"]


@pytest.mark.parametrize(
    ("scores", "different", "told"),
    [
        ({2: 0.6, 3: 0.5, 5: 0.4}, 9, SMALLEST),
        ({2: 0.4, 3: 0.6, 5: 0.5}, 9, None),
        ({2: 0.4, 3: 0.5, 5: 0.6}, 9, "the largest number tried is the best: more may be better, as --k 8"),
        ({30: 0.5, 50: 0.6}, 900, "the largest number tried is the best: more may be better, as --k 100"),
        ({3: 0.5, 5: 0.6}, 6, None),
        ({2: 0.6}, 3, None),
    ],
)  # fmt: skip
def test_the_first_or_last_number_tried_is_told_where_it_is_the_best(
    scores: dict[int, float], different: int, told: str | None
):
    found = Gathered(np.arange(different)[:, None], [[1]] * different, lambda rows: ["a"] * len(rows), 0, False)
    clusters = Clusters(np.zeros(different, np.int64), np.ones(different, np.float32), scores)
    first, *rest = page(found, clusters)
    assert first.startswith(f"silhouette by number of clusters: {min(scores)}: ")
    assert rest[: rest.index("")] == ([] if told is None else [told])
