"""mteb's own tasks on copies of repositories, laid out as on the hub, and without a network."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

mteb = pytest.importorskip("mteb", reason="the extra evaluate is not installed")
datasets = pytest.importorskip("datasets")

from tests.cli.conftest import Run, run  # noqa: E402, F401

from afterword import Encoder  # noqa: E402
from afterword.adapters.mteb import as_mteb  # noqa: E402
from afterword.adapters.mteb_official import TASKS, MtebOfficial, official  # noqa: E402
from afterword.errors import InputError  # noqa: E402
from afterword.tasks.results import read  # noqa: E402
from afterword.tasks.rows import Folder, Hub  # noqa: E402

WORDS = ("猫", "狗", "雨天", "晴天", "大树", "树叶")
BY_NAME = {task.name: task for task in TASKS}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return Encoder.load("afterword-mini", "classical")


def copy(root: Path, name: str, **splits: list[Mapping[str, Any]]) -> Path:
    """A copy of a task's repository, a file per split."""
    folder = root / BY_NAME[name].files()[0]
    folder.mkdir(parents=True)
    for split, rows in splits.items():
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return folder


def search(root: Path, name: str, split: str) -> None:
    """A copy of a repository for reranking or retrieval, with its configurations in README.md, as on the hub."""
    parts = {
        "corpus": [{"_id": f"d{i}", "title": "", "text": w} for i, w in enumerate(WORDS)],
        "queries": [{"_id": "q0", "text": "一只猫"}, {"_id": "q1", "text": "树"}],
        "qrels": [{"query-id": f"q{i}", "corpus-id": d, "score": 1} for i, d in enumerate(("d0", "d4"))],
        "top_ranked": [{"query-id": f"q{i}", "corpus-ids": [f"d{j}" for j in range(6)]} for i in range(2)],
    }
    folder = copy(root, name, **parts)
    configs = "".join(
        f"- config_name: {'default' if part == 'qrels' else part}\n  data_files:\n  - split: {split}\n"
        f"    path: {part}.jsonl\n"
        for part in parts
    )
    (folder / "README.md").write_text(f"---\nconfigs:\n{configs}---\n")


def pairs(count: int = 6) -> list[dict[str, Any]]:
    return [{"sentence1": w, "sentence2": f"一{w[::-1]}", "score": i % 5} for i, w in enumerate(WORDS[:count])]


def test_the_31_are_those_of_mtebs_benchmark():
    benchmark = {task.metadata.name: task for task in mteb.get_benchmark("MTEB(cmn, v1)").tasks}
    assert {task.official for task in TASKS} == set(benchmark) and len(TASKS) == 31
    for task in TASKS:
        theirs, ours = benchmark[task.official], task.mteb_task()
        assert list(ours.eval_splits) == list(theirs.eval_splits), task.name
        assert (task.metric, list(task.languages)) == (theirs.metadata.main_score, theirs.metadata.eval_langs)


def test_scores_are_those_of_mtebs_own_run(tmp_path: Path, encoder: Encoder):
    rows = [{"text": f"{w}{i}", "label": i % 2} for i in range(6) for w in WORDS]
    copy(tmp_path, "STSB-zh.mteb", test=pairs(), validation=pairs(4))
    copy(tmp_path, "Waimai.mteb", train=rows, test=rows[::-1])
    copy(tmp_path, "CLSClusteringS2S.mteb", test=[{"sentences": list(WORDS), "labels": list("aabbcc")}] * 2)
    named = {"sent1": "sentence1", "sent2": "sentence2"}
    nli = [{**{k: r[v] for k, v in named.items()}, "labels": i % 2} for i, r in enumerate(pairs())]
    copy(tmp_path, "Ocnli.mteb", validation=nli)
    search(tmp_path, "CMedQAv1.mteb", "test")
    search(tmp_path, "VideoRetrieval.mteb", "dev")
    source = Folder(tmp_path)
    for task in (task for task in TASKS if (tmp_path / task.files()[0]).is_dir()):
        loaded = task.load(source)
        scores = loaded.score(encoder, 0)
        theirs = mteb.evaluate(
            as_mteb(encoder), [loaded.loaded], cache=None, show_progress_bar=False, co2_tracker=False
        ).task_results[0]
        assert scores.main == pytest.approx(theirs.get_score(), abs=1e-9), task.name
        assert scores.metrics[task.metric] == scores.main == scores.metrics["main_score"]
        assert all(isinstance(text, str) for text in loaded.texts())
        assert set(loaded.texts()) >= ({"猫"} if task.name != "Waimai.mteb" else {"猫0"}), task.name


def test_the_digest_of_a_copy_is_of_its_files_and_the_hubs_is_the_commit(tmp_path: Path):
    task = BY_NAME["ATEC.mteb"]
    folder = copy(tmp_path, "ATEC.mteb", test=pairs())
    (name,) = task.files()
    before = task.digests(Folder(tmp_path))
    (folder / ".cache").mkdir()
    (folder / ".cache" / "x.lock").write_text("hf download leaves such files")
    assert task.digests(Folder(tmp_path)) == before == task.digests(Hub(tmp_path))
    (folder / "test.jsonl").write_text(json.dumps(pairs()[0]) + "\n")
    assert task.digests(Folder(tmp_path)) != before
    assert task.digests(Hub()) == {name: mteb.get_task("ATEC").metadata.revision}


def test_a_task_by_mtebs_name():
    assert official("STSB") is BY_NAME["STSB-zh.mteb"]
    assert official("STS22") == MtebOfficial("STS22.mteb", "STS22") and official("STS22").group == "mteb"
    with pytest.raises(InputError, match="TNewss"):
        official("TNewss")
    with pytest.raises(InputError, match="CIFAR10"):
        official("CIFAR10")


def test_without_a_network_each_task_says_what_is_missing_and_the_others_run(
    tmp_path: Path,
    run: Run,  # noqa: F811
):
    copy(tmp_path / "data", "ATEC.mteb", test=pairs())
    (tmp_path / "data" / "C-MTEB" / "BQ").mkdir()
    words = ("evaluate", "-m", "afterword-mini", "--data", tmp_path / "data", "--out", tmp_path / "out")
    ended = run(*words, "--tasks", "mteb:ATEC,BQ.mteb,LCQMC.mteb")
    lines = ended.err.splitlines()
    assert ended.code == 1 and "ATEC.mteb" in ended.out
    (bq,) = [line for line in lines if line.startswith("BQ.mteb: error")]
    (lcqmc,) = [line for line in lines if line.startswith("LCQMC.mteb: error")]
    revision = mteb.get_task("LCQMC").metadata.revision
    assert f"hf download C-MTEB/LCQMC --repo-type dataset --revision {revision} --local-dir DIR/C-MTEB/LCQMC" in lcqmc
    assert "data/C-MTEB/LCQMC does not exist" in lcqmc and "BQ cannot be loaded" in bq and "--data hub" in bq
    result = read(tmp_path / "out" / "afterword-mini" / "classical" / "ATEC.mteb.json")
    assert (result.group, result.metric) == ("cmteb-sts", "cosine_spearman")
    assert result.metric_named("cosine_pearson") is not None
    again = run(*words, "--tasks", "ATEC.mteb")
    assert again.code == 0 and "1/1" not in again.err  # finished before
