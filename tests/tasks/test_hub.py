"""The hub's data sets, read by its own library from a mirror on disk: the fields, splits and configurations."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from afterword.errors import BadRow, DataError, MissingDataset
from afterword.tasks import sts, transfer
from afterword.tasks.hub import PARTS, Hub
from afterword.tasks.rows import label, number, text

datasets = pytest.importorskip("datasets")

PAIRS = {"sentence1": ["a", "b c"], "sentence2": ["A", "d"], "score": [5.0, 1.25]}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


def some_rows() -> dict[str, tuple]:
    """The parts, each with as many rows as it has here."""
    return {name: tuple(replace(part, rows=None) for part in parts) for name, parts in PARTS.items()}


def parquet(file: Path, columns: dict[str, list]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    datasets.Dataset.from_dict(columns).to_parquet(str(file))


def lines(file: Path, columns: dict[str, list]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(
        "".join(json.dumps(dict(zip(columns, row, strict=True))) + "\n" for row in zip(*columns.values(), strict=True))
    )


def glue(folder: Path) -> None:
    """Two configurations, declared as the hub's repositories do."""
    sentences = {"sentence": ["so fine", "so bad"], "label": [1, 0], "idx": [0, 1]}
    pairs = {"sentence1": ["a", "b"], "sentence2": ["c", "d"], "label": [1, 0], "idx": [0, 1]}
    for split in ("train", "validation", "test"):
        unlabelled = {**sentences, "label": [-1, -1]} if split == "test" else sentences
        parquet(folder / "sst2" / f"{split}-00000-of-00001.parquet", unlabelled)
        parquet(folder / "mrpc" / f"{split}-00000-of-00001.parquet", pairs)
    files = "".join(
        f"- config_name: {name}\n  data_files:\n"
        + "".join(f"  - split: {s}\n    path: {name}/{s}-*\n" for s in ("train", "validation", "test"))
        for name in ("sst2", "mrpc")
    )
    (folder / "README.md").write_text(f"---\nconfigs:\n{files}---\n")


def test_pairs(tmp_path: Path):
    lines(tmp_path / "mteb" / "sts12-sts" / "test.jsonl", {"split": ["test"] * 2, **PAIRS})
    hub = Hub(tmp_path, some_rows())
    fields = {"sentence1": text, "sentence2": text, "score": number}
    assert hub.rows("en/sts_raw/sts12.test", fields, {"subset": text}) == [
        {"sentence1": "a", "sentence2": "A", "score": 5.0, "subset": None},
        {"sentence1": "b c", "sentence2": "d", "score": 1.25, "subset": None},
    ]
    loaded = sts.sts("STS12", text="raw").load(hub)
    assert loaded.left == ("a", "b c") and loaded.gold.tolist() == [5, 1.25] and loaded.subsets == ("", "")


def test_splits_become_rows_of_one_data_set(tmp_path: Path):
    folder = tmp_path / "cornell-movie-review-data" / "rotten_tomatoes"
    for split, word in [("train", "good"), ("validation", "fine"), ("test", "bad")]:
        parquet(folder / f"{split}.parquet", {"text": [word, f"so {word}"], "label": [int(word != "bad"), 0]})
    found = Hub(tmp_path, some_rows()).rows("en/transfer/mr", {"text": text, "label": label, "split": text})
    assert [r["text"] for r in found] == ["good", "so good", "fine", "so fine", "bad", "so bad"]
    assert [r["label"] for r in found] == ["1", "0", "1", "0", "0", "0"] and {r["split"] for r in found} == {"all"}


def test_configurations_and_two_repositories(tmp_path: Path):
    glue(tmp_path / "nyu-mll" / "glue")
    data = tmp_path / "jxm" / "sst2" / "data"
    for split, words in [("train", ["x", "y"]), ("test", ["great", "poor"]), ("dev", ["x", "y"])]:
        parquet(data / f"{split}-00000-of-00001.parquet", {"sentence": words, "label": [1, 0]})
    hub = Hub(tmp_path, some_rows())
    found = hub.rows("en/transfer/sst2", {"text": text, "label": label, "split": text})
    assert [tuple(r.values()) for r in found] == [
        ("so fine", "1", "train"), ("so bad", "0", "train"), ("so fine", "1", "dev"), ("so bad", "0", "dev"),
        ("great", "1", "test"), ("poor", "0", "test"),
    ]  # fmt: skip
    mrpc = transfer.TransferPairs("MRPC", "en/transfer/mrpc", folds=2).load(hub)
    assert mrpc.sizes == (4, 2) and mrpc.rows[0] in {("a", "c"), ("b", "d")}


def test_the_digest_follows_the_rows(tmp_path: Path):
    found = []
    for mirror, score in [("a", 1.25), ("b", 1.25), ("c", 1.5)]:
        lines(tmp_path / mirror / "mteb" / "sts12-sts" / "test.jsonl", {**PAIRS, "score": [5.0, score]})
        found.append(Hub(tmp_path / mirror, some_rows()).digest("en/sts_raw/sts12.test"))
    assert found[0] == found[1] != found[2]


def test_what_is_not_as_it_should_be(tmp_path: Path):
    lines(tmp_path / "mteb" / "sts12-sts" / "test.jsonl", PAIRS)
    lines(tmp_path / "mteb" / "sts13-sts" / "test.jsonl", {**PAIRS, "score": [1.0, None]})
    lines(tmp_path / "mteb" / "sts14-sts" / "test.jsonl", {"text": ["a"], "label": [1]})
    with pytest.raises(DataError, match="mteb/sts12-sts has 2 rows in test, not 3108"):
        Hub(tmp_path).rows("en/sts_raw/sts12.test", {"score": number})
    hub = Hub(tmp_path, some_rows())
    for name, error, problem in [
        ("en/sts_raw/sts13.test", BadRow, "mteb/sts13-sts/test:2: 'score' is None, not a number"),
        ("en/sts_raw/sts14.test", DataError, "mteb/sts14-sts has no field score, only text, label"),
        ("en/sts_raw/sts15.test", MissingDataset, "sts15-sts cannot be loaded: "),
        ("en/sts/sts12.test", MissingDataset, "not known to have en/sts/sts12.test: en/sts_raw/sts12.test is"),
        ("zh/none", MissingDataset, "not known to have zh/none: a folder may"),
    ]:
        with pytest.raises(error, match=problem):
            hub.rows(name, {"score": number})
