"""What is written: mteb's form, the same bytes each time, and nothing that looks finished but is not."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from afterword.errors import DataError
from afterword.tasks import results
from afterword.tasks.pairs import Pairs
from afterword.tasks.results import Result, key, read, write
from afterword.tasks.task import Scores

PAIRS = Scores(
    0.5, {"cosine_spearman": 0.5, "by_subset": {"a": 0.25, "b": 0.75}},
    {"gold": np.array([1.0, 2.0]), "similarity": np.array([0.1, 0.9])}, ("a note",),
)  # fmt: skip
ABOUT = {"model": "m", "name": "classical", "versions": {"numpy": "2"}}


def result(scores: dict[int, Scores], **more: object) -> Result:
    return Result("STS12", "sts", "cosine_spearman", ("eng-Latn",), "k", "r", scores, {**ABOUT, **more})


def test_what_is_written_is_read(tmp_path: Path):
    written = result({0: PAIRS})
    write(tmp_path / "a" / "STS12.json", written)
    found = read(tmp_path / "a" / "STS12.json")
    assert (found.task, found.group, found.metric, found.key, found.revision) == (
        "STS12", "sts", "cosine_spearman", "k", "r",
    )  # fmt: skip
    assert found.main == 0.5 and found.deviation is None and found.notes == ("a note",) and found.about == ABOUT
    assert found.scores[0].metrics == PAIRS.metrics
    assert found.items["similarity"].tolist() == [0.1, 0.9] and found.items["gold"].tolist() == [1.0, 2.0]
    assert found.metric_named("cosine_spearman") == 0.5 and found.metric_named("by_subset") is None


def test_mteb_reads_it(tmp_path: Path):
    mteb = pytest.importorskip("mteb")
    write(tmp_path / "STS12.json", result({0: PAIRS}))
    found = mteb.results.TaskResult.from_disk(tmp_path / "STS12.json", load_historic_data=False)
    assert found.task_name == "STS12" and found.dataset_revision == "r" and found.get_score() == 0.5
    assert found.scores["test"][0]["by_subset"] == {"a": 0.25, "b": 0.75}
    assert mteb.results.TaskResult.from_disk(tmp_path / "STS12.json").languages == ["eng"]


def test_an_undefined_score_is_no_zero(tmp_path: Path):
    mteb = pytest.importorskip("mteb")
    write(tmp_path / "a.json", result({0: Scores(math.nan, {"cosine_spearman": math.nan}, notes=("constant",))}))
    assert math.isnan(read(tmp_path / "a.json").main)
    assert math.isnan(mteb.results.TaskResult.from_disk(tmp_path / "a.json").get_score())


def test_seeds_give_a_mean_and_a_deviation(tmp_path: Path):
    scores = {
        seed: Scores(m, {"accuracy": m, "f1": {"a": 2 * m}}, {"correct": np.array([seed == 7, True])})
        for seed, m in ((3, 0.6), (7, 0.8))
    }
    write(tmp_path / "a.json", result(scores))
    found = read(tmp_path / "a.json")
    assert found.main == pytest.approx(0.7) and found.deviation == pytest.approx(0.2 / math.sqrt(2))
    assert found.items["correct"].tolist() == [0.5, 1.0] and list(found.scores) == [3, 7]
    assert found.scores[7].main == 0.8 and found.scores[3].metrics == {"accuracy": 0.6, "f1": {"a": 1.2}}
    told = json.loads((tmp_path / "a.json").read_text())["scores"]["test"][0]
    assert told["main_score"] == told["accuracy"] == pytest.approx(0.7) and told["f1"]["a"] == pytest.approx(1.4)
    assert told["main_score_std"] == found.deviation


def test_what_is_not_whole_is_refused(tmp_path: Path):
    path = tmp_path / "a.json"
    write(path, result({0: PAIRS}))
    whole = path.read_text()
    path.write_text(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"a\.json"):
        read(path)
    path.write_text('{"a": 1}')
    with pytest.raises(DataError, match="KeyError"):
        read(path)


def test_a_key_depends_on_all_that_a_score_depends_on(monkeypatch: pytest.MonkeyPatch):
    task, digests = Pairs("mine", "mine"), {"mine": "d"}
    first = key(task, digests, "encoder", "fit")
    assert first == key(Pairs("mine", "mine"), {"mine": "d"}, "encoder", "fit")
    others = [
        key(Pairs("mine", "other"), digests, "encoder", "fit"),
        key(task, {"mine": "e"}, "encoder", "fit"),
        key(task, digests, "another", "fit"),
        key(task, digests, "encoder", None),
    ]
    monkeypatch.setattr(results, "version", lambda name: "999")
    others.append(key(task, digests, "encoder", "fit"))
    assert len({first, *others}) == 6
