"""Caption retrieval: by hand, against scikit-learn; what is refused."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.neighbors import NearestNeighbors
from tests.tasks.planted import Planted

from afterword.errors import DataError
from afterword.tasks.captions import CaptionRetrieval, Captions
from afterword.tasks.task import Folder

TASK = CaptionRetrieval("Toy", "toy")


def at(*degrees: float) -> list[list[float]]:
    """Vectors of several lengths at some angles."""
    return [[(1 + i) * math.cos(math.radians(d)), (1 + i) * math.sin(math.radians(d))] for i, d in enumerate(degrees)]


def folder(path: Path, *rows: Any) -> Folder:
    (path / "toy.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    return Folder(path)


def images(*counts: int) -> list[dict[str, Any]]:
    return [{"image": f"{i}.jpg", "captions": [f"{i}{j}" for j in range(n)]} for i, n in enumerate(counts)]


def test_by_hand(tmp_path: Path) -> None:
    # image 0 (angles 0, 5, 9) finds both; of image 1 (90, 100, 60) the caption at 81 stands before that at 60;
    # image 2 (81, 200) has one other, which is behind seven
    rows = images(3, 3, 2)
    captions = [c for r in rows for c in r["captions"]]
    vectors = dict(zip(captions, at(0, 5, 9, 90, 100, 60, 81, 200), strict=True))
    scores = TASK.run(Planted(vectors), folder(tmp_path, *rows))
    assert scores.items["correct"].tolist() == [1, 0, 0]
    assert scores.main == scores.metrics["strict_accuracy"] == pytest.approx(1 / 3)
    assert scores.metrics["recall_at_1"] == pytest.approx((1 / 2 + 0 + 0) / 3)  # at 90, 81 is nearer than 100
    assert scores.metrics["recall_at_5"] == pytest.approx((1 + 1 + 0) / 3)
    assert scores.metrics["recall_at_10"] == scores.metrics["hit_rate_at_10"] == 1
    assert scores.metrics["hit_rate_at_1"] == pytest.approx(1 / 3)
    assert scores.metrics["hit_rate_at_5"] == pytest.approx(2 / 3)


def test_all_captions_are_asked_for_and_blank_ones_are_read_as_a_stop(tmp_path: Path) -> None:
    rows = images(2, 2)
    rows[1]["captions"][1] = " "
    source = folder(tmp_path, *rows)
    assert TASK.load(source).texts() == ["00", "01", "10", " "]
    vectors = dict(zip(["00", "01", "10", "."], at(0, 5, 90, 80), strict=True))
    assert TASK.run(Planted(vectors), source).main == 1


def test_against_scikit_learn() -> None:
    n, random = 80, np.random.default_rng(0)
    vectors = np.repeat(random.normal(size=(n, 16)), 5, axis=0) + 0.5 * random.normal(size=(5 * n, 16))
    captions = Captions.concatenate([str(i) for i in range(n)], [[f"{i}.{j}" for j in range(5)] for i in range(n)])
    scores = captions.score(Planted(dict(zip(captions.sentences, vectors.tolist(), strict=True))), 0)
    _, order = NearestNeighbors(n_neighbors=11, metric="cosine").fit(vectors).kneighbors(vectors[::5])
    assert (order[:, 0] == np.arange(n) * 5).all(), "each finds itself first"
    hits = order[:, 1:] // 5 == np.arange(n)[:, None]
    assert scores.items["correct"].tolist() == hits[:, :4].all(1).tolist()
    for k in (1, 5, 10):
        assert scores.metrics[f"recall_at_{k}"] == pytest.approx(hits[:, :k].sum(1).mean() / 4)
        assert scores.metrics[f"hit_rate_at_{k}"] == pytest.approx(hits[:, :k].any(1).mean())
    assert 0.1 < scores.main < scores.metrics["recall_at_5"] < 1


def test_vectors_that_say_nothing_give_nan_and_the_reason(tmp_path: Path) -> None:
    rows = images(2, 2)
    for value in (math.nan, 1.0):
        vectors = {c: [value, 1.0] for r in rows for c in r["captions"]}
        scores = TASK.run(Planted(vectors), folder(tmp_path, *rows))
        assert math.isnan(scores.main) and "undefined" in scores.notes[0]


def test_an_image_with_one_caption_is_named_by_its_row(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="row 2"):
        TASK.load(folder(tmp_path, *images(2, 1)))
