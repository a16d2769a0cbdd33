"""``afterword evaluate``: options, results on disk, and a run that resumes after it was killed."""

import csv
import json
import signal
from pathlib import Path

import numpy as np
import pytest
from tests.adapters.test_sentence_transformers_model import glove
from tests.cli.conftest import Run
from tests.killed import forked
from tests.tiny import tiny

from afterword import Encoder
from afterword.tasks.pairs import Pairs
from afterword.tasks.task import Folder

WORDS = "cat dog bank river money water tree house light stone".split()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny("gpt2", tmp_path_factory.mktemp("models") / "tiny-gpt2")


def write_pairs(path: Path, rows: int, seed: int = 0) -> Path:
    random = np.random.default_rng(seed)
    texts = [" ".join(random.choice(WORDS, random.integers(3, 9))) for _ in range(2 * rows)]
    lines = [
        json.dumps({"sentence1": a, "sentence2": b, "score": float(random.random())})
        for a, b in zip(texts[:rows], texts[rows:], strict=True)
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_run(run: Run, model: Path, tmp_path: Path):
    mine, out = write_pairs(tmp_path / "mine.jsonl", 30), tmp_path / "out"
    spec = ("evaluate", "-m", model, "--data", tmp_path, "--out", out, "--tasks", mine, "--method", "classical")
    ended = run(*spec, "--post", "none", "--post", "normalise+truncate:dimensions=3")
    wanted = Pairs("mine", "mine").run(Encoder.load(model, "classical"), Folder(tmp_path)).main
    assert ended.code == 0 and f"1/1 mine: classical: {100 * wanted:.2f}" in ended.err.splitlines()
    assert ended.out.splitlines()[0] == "pairs, cosine_spearman, x 100"
    assert f"| classical                                 | {100 * wanted:.2f} |" in ended.out.splitlines()
    told = json.loads((out / "tiny-gpt2" / "classical" / "mine.json").read_text())
    assert told["scores"]["test"][0]["main_score"] == pytest.approx(wanted, abs=1e-6)
    assert told["afterword"]["model"] == "tiny-gpt2" and told["evaluation_time"] is None
    assert (out / "tiny-gpt2" / "classical+normalise+truncate-dimensions=3" / "mine.json").exists()
    with (out / "results.csv").open() as file:
        assert [r["encoder"] for r in csv.DictReader(file)] == [
            "classical",
            "classical+normalise+truncate:dimensions=3",
        ]
    assert (out / "results.md").read_text() == ended.out
    again = run(*spec)
    assert (again.code, again.err) == (0, "") and "classical" in again.out


def test_a_missing_file_does_not_stop_the_other_tasks(run: Run, model: Path, tmp_path: Path):
    mine = write_pairs(tmp_path / "mine.jsonl", 30)
    ended = run(
        "evaluate", "-m", model, "--data", tmp_path, "--out", tmp_path / "out", "--method", "classical",
        "--tasks", f"STSB,{mine}",
    )  # fmt: skip
    assert ended.code == 1 and "mine" in ended.out and "STSB" not in ended.out
    assert ended.err.splitlines()[0].startswith(f"STSB: error: {tmp_path}/en/sts/stsb.test")
    assert ended.last == f"1 task could not be run; the other results are in {tmp_path / 'out'}"


def test_results_of_a_different_encoder_are_refused_or_replaced(run: Run, model: Path, tmp_path: Path):
    mine, other = write_pairs(tmp_path / "mine.jsonl", 30), write_pairs(tmp_path / "other.jsonl", 30, seed=1)
    out = tmp_path / "out"
    spec = ("evaluate", "--out", out, "--method", "classical", "-m", model)
    assert run(*spec, "--tasks", mine).code == 0
    before = {p: p.read_bytes() for p in out.rglob("*.*") if p.is_file()}
    short = (*spec, "--tasks", other, "--max-length", 6)
    refused = run(*short)
    assert refused.code == 2 and len(refused.err.splitlines()) == 1
    assert all(value in refused.last for value in ("mine.json", "--name", "--overwrite"))
    assert {p: p.read_bytes() for p in out.rglob("*.*") if p.is_file()} == before
    assert run(*short, "--name", "short").code == 0
    assert "| short classical" in (out / "results.md").read_text()
    assert run(*short, "--overwrite").code == 0
    assert not (out / "tiny-gpt2" / "classical" / "mine.json").exists()


def test_hidden_labels_give_a_submission_next_to_the_results(run: Run, tmp_path: Path):
    (tmp_path / "en" / "csts").mkdir(parents=True)
    rows = ["sentence1,sentence2,condition,label", "a red car,a red bus,the colour,-1", "a dog,a cat,the animal,-1"]
    (tmp_path / "en" / "csts" / "csts_test.csv").write_text("\n".join(rows))
    spec = ("evaluate", "-m", "afterword-mini", "--data", tmp_path, "--out", tmp_path / "out", "--tasks", "CSTS.test")
    ended = run(*spec, "--method", "prompt:template=csts", "--method", "classical")
    folder = tmp_path / "out" / "afterword-mini" / "prompt-template=csts"
    assert ended.code == 1 and "CSTS.test: classical: error: " in ended.err
    assert "the template has no {condition}" in ended.err
    sent = json.loads((folder / "CSTS.test.submission.json").read_text())
    assert [*sent] == ["0", "1"] and all(-1 <= value <= 1 for value in sent.values())
    assert "| prompt:template=csts |       nan |" in ended.out and "the labels are not public" in ended.out


def test_fitting(run: Run, model: Path, tmp_path: Path):
    mine = write_pairs(tmp_path / "mine.jsonl", 40)
    (tmp_path / "texts.txt").write_text("\n".join(f"a {w} and the {v}" for w in WORDS for v in WORDS) + "\n\n")
    spec = ("evaluate", "-m", model, "--tasks", mine, "--method", "tfidf", "--post", "whiten:dimensions=4")
    scores = set()
    for fit in (tmp_path / "texts.txt", "target"):
        out = tmp_path / f"out-{Path(fit).name}"
        assert run(*spec, "--fit", fit, "--out", out).code == 0
        result = json.loads((out / "tiny-gpt2" / "tfidf+whiten-dimensions=4" / "mine.json").read_text())
        scores.add(result["scores"]["test"][0]["main_score"])
    assert len(scores) == 2
    (tmp_path / "none.txt").write_text("\n \n")
    for words, value in (((), "--fit"), (("--fit", tmp_path / "none.txt"), "none.txt")):
        ended = run(*spec, *words)
        assert ended.code == 2 and value in ended.last


def test_a_model_of_sentence_transformers(run: Run, tmp_path: Path):
    folder = glove(tmp_path / "glove", {w: list(np.random.default_rng(i).random(5)) for i, w in enumerate(WORDS)})
    mine = write_pairs(tmp_path / "mine.jsonl", 30)
    spec = ("evaluate", "--data", tmp_path, "--out", tmp_path / "out", "--tasks", mine)
    ended = run(*spec, "--sentence-transformer", folder, "--post", "none", "--post", "centre", "--fit", "target")
    assert ended.code == 0 and "sentence-transformers+centre" in ended.out
    from sentence_transformers import SentenceTransformer

    wanted = Pairs("mine", "mine").run(SentenceTransformer(str(folder), device="cpu"), Folder(tmp_path)).main
    told = json.loads((tmp_path / "out" / "glove" / "sentence-transformers" / "mine.json").read_text())
    assert told["scores"]["test"][0]["main_score"] == pytest.approx(wanted, abs=1e-6)
    both = run(*spec, "--sentence-transformer", folder, "-m", folder)
    assert both.code == 2 and "--sentence-transformer" in both.last


def test_mistakes_are_refused_before_the_model_is_loaded(run: Run):
    for words in (
        ("-m", "x", "--data", "."), ("--tasks", "sts", "--data", "."),
        ("-m", "x", "--tasks", "sts", "--data", "/no/such"),
        ("-m", "x", "--tasks", "sts", "--data", ".", "--post", "whitn"),
        ("-m", "x", "--tasks", "sts", "--data", ".", "--fit", "no.txt"),
    ):  # fmt: skip
        ended = run("evaluate", *words)
        assert ended.code == 2 and len(ended.err.splitlines()) == 1, words


def test_a_killed_run_resumes(run: Run, model: Path, tmp_path: Path):
    tasks = ",".join(str(write_pairs(tmp_path / f"t{i}.jsonl", 20, i)) for i in range(3))
    spec = ["evaluate", "-m", model, "--data", tmp_path, "--tasks", tasks, "--method", "classical", "--method", "reba"]
    code, calls = forked([*spec, "--out", tmp_path / "whole"], tmp_path / "log")
    assert code == 0
    moves = [i for i, call in enumerate(calls) if call.startswith("replace")]
    code, _ = forked([*spec, "--out", tmp_path / "killed"], tmp_path / "log", moves[3])
    assert code == -signal.SIGKILL and len(list((tmp_path / "killed").glob("*/*/*.json"))) == 3
    assert run(*spec, "--out", tmp_path / "killed").code == 0
    assert tree(tmp_path / "killed") == tree(tmp_path / "whole") and len(tree(tmp_path / "whole")) == 6


def tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.suffix == ".json"}
