"""``afterword evaluate``: what a user types, what is left on disk, and what happens when it is killed."""

import csv
import json
import signal
import time
from pathlib import Path
from random import Random

import numpy as np
import pytest
from tests.adapters.test_sentence_transformers_model import glove
from tests.cli.conftest import Run, command
from tests.killed import forked
from tests.tiny import tiny

from afterword import Encoder
from afterword.tasks.pairs import Pairs
from afterword.tasks.rows import Folder

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


def test_one_missing_file_is_told_and_the_rest_is_there(run: Run, model: Path, tmp_path: Path):
    mine = write_pairs(tmp_path / "mine.jsonl", 30)
    ended = run(
        "evaluate", "-m", model, "--data", tmp_path, "--out", tmp_path / "out", "--method", "classical",
        "--tasks", f"STSB,{mine}",
    )  # fmt: skip
    assert ended.code == 1 and "mine" in ended.out and "STSB" not in ended.out
    assert ended.err.splitlines()[0].startswith(f"STSB: error: {tmp_path}/en/sts/stsb.test")
    assert ended.last == f"1 task could not be run; the rest is in {tmp_path / 'out'}"


def test_results_of_one_encoder_are_not_mixed_with_anothers(run: Run, model: Path, tmp_path: Path):
    """N1: another length, or another model of the same folder name, is refused before it runs."""
    mine, other = write_pairs(tmp_path / "mine.jsonl", 30), write_pairs(tmp_path / "other.jsonl", 30, seed=1)
    spec = ("evaluate", "--out", tmp_path / "out", "--method", "classical")
    assert run(*spec, "-m", model, "--tasks", mine).code == 0
    before = {p: p.read_bytes() for p in (tmp_path / "out").rglob("*.*") if p.is_file()}
    short = run(*spec, "-m", model, "--tasks", other, "--max-length", 6)
    assert short.code == 2 and len(short.err.splitlines()) == 1 and "mine.json" in short.last
    assert "--name" in short.last and "--overwrite" in short.last
    namesake = run(*spec, "-m", tiny("gpt2", tmp_path / "tiny-gpt2", seed=1), "--tasks", other)
    assert namesake.code == 2 and "mine.json" in namesake.last
    assert {p: p.read_bytes() for p in (tmp_path / "out").rglob("*.*") if p.is_file()} == before
    (tmp_path / "out" / "tiny-gpt2" / "classical" / "bad.json").write_text("{}")
    ended = run(*spec, "-m", model, "--tasks", other, "--max-length", 6, "--name", "short")
    assert ended.code == 0 and "bad.json" in ended.err
    assert "| short classical" in (tmp_path / "out" / "results.md").read_text()
    assert run(*spec, "-m", model, "--tasks", other, "--max-length", 6, "--overwrite").code == 0
    assert not (tmp_path / "out" / "tiny-gpt2" / "classical" / "mine.json").exists()


def test_methods_of_one_name_are_refused(run: Run, tmp_path: Path):
    mine = write_pairs(tmp_path / "p.jsonl", 3)
    ended = run("evaluate", "-m", "x", "--tasks", mine, "--method", "@a/m.json", "--method", "@b/m.json")
    assert ended.code == 2 and "@a/m.json" in ended.last and "--method" in ended.last


def test_the_similarities_of_hidden_labels_lie_beside_the_results(run: Run, tmp_path: Path):
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
    spec = ("evaluate", "-m", model, "--data", tmp_path, "--tasks", mine)
    spec = (*spec, "--method", "classical", "--method", "tfidf", "--post", "whiten:dimensions=4")
    unfitted = run(*spec)
    assert unfitted.code == 2 and "--fit" in unfitted.last
    scores = {}
    for fit in (tmp_path / "texts.txt", "target"):
        out = tmp_path / f"out-{Path(fit).name}"
        ended = run(*spec, "--fit", fit, "--out", out)
        found = out / "tiny-gpt2" / "tfidf+whiten-dimensions=4" / "mine.json"
        assert ended.code == 0
        scores[str(fit)] = json.loads(found.read_text())["scores"]["test"][0]["main_score"]
    assert len(set(scores.values())) == 2
    mixed = run(*spec, "--fit", "target", "--out", tmp_path / "out-texts.txt")
    assert mixed.code == 2 and "mine.json" in mixed.last
    (tmp_path / "none.txt").write_text("\n \n")
    assert "holds no texts to fit on" in run(*spec, "--fit", tmp_path / "none.txt").last


def test_what_sentence_transformers_runs(run: Run, tmp_path: Path):
    folder = glove(tmp_path / "glove", {w: list(np.random.default_rng(i).random(5)) for i, w in enumerate(WORDS)})
    mine = write_pairs(tmp_path / "mine.jsonl", 30)
    spec = ("evaluate", "--data", tmp_path, "--out", tmp_path / "out", "--tasks", mine)
    ended = run(*spec, "--sentence-transformer", folder, "--post", "none", "--post", "centre", "--fit", "target")
    assert ended.code == 0 and "sentence-transformers+centre" in ended.out
    from sentence_transformers import SentenceTransformer

    wanted = Pairs("mine", "mine").run(SentenceTransformer(str(folder), device="cpu"), Folder(tmp_path)).main
    told = json.loads((tmp_path / "out" / "glove" / "sentence-transformers" / "mine.json").read_text())
    assert told["scores"]["test"][0]["main_score"] == pytest.approx(wanted, abs=1e-6)
    assert run(*spec, "--sentence-transformer", folder).err == ""
    both = run(*spec, "--sentence-transformer", folder, "-m", folder)
    assert both.code == 2 and "--sentence-transformer" in both.last


def test_what_is_wrong_is_one_line_before_a_model_is_loaded(run: Run):
    for words in (
        ("-m", "x", "--data", "."), ("--tasks", "sts", "--data", "."),
        ("-m", "x", "--tasks", "sts", "--data", "/no/such"),
        ("-m", "x", "--tasks", "sts", "--data", ".", "--post", "whitn"),
        ("-m", "x", "--tasks", "sts", "--data", ".", "--fit", "no.txt"),
    ):  # fmt: skip
        ended = run("evaluate", *words)
        assert ended.code == 2 and len(ended.err.splitlines()) == 1, words


def test_a_run_that_was_killed_between_two_results_goes_on(run: Run, model: Path, tmp_path: Path):
    tasks = ",".join(str(write_pairs(tmp_path / f"t{i}.jsonl", 20, i)) for i in range(3))
    spec = ["evaluate", "-m", model, "--data", tmp_path, "--tasks", tasks, "--method", "classical", "--method", "reba"]
    code, calls = forked([*spec, "--out", tmp_path / "whole"], tmp_path / "log")
    assert code == 0
    moves = [i for i, call in enumerate(calls) if call.startswith("replace")]
    code, _ = forked([*spec, "--out", tmp_path / "killed"], tmp_path / "log", moves[3])
    assert code == -signal.SIGKILL and len(list((tmp_path / "killed").glob("*/*/*.json"))) == 3
    assert run(*spec, "--out", tmp_path / "killed").code == 0
    assert tree(tmp_path / "killed") == tree(tmp_path / "whole") and len(tree(tmp_path / "whole")) == 6


@pytest.mark.soak
def test_a_run_that_is_killed_anywhere_goes_on_to_the_same_results(
    chance: Random, run: Run, model: Path, tmp_path: Path
):
    kills = 9
    tasks = ",".join(str(write_pairs(tmp_path / f"t{i}.jsonl", 40 if i == 0 else 150, i)) for i in range(4))
    spec = ["evaluate", "-m", model, "--data", tmp_path, "--tasks", tasks]
    spec += ["--method", "classical", "--method", "reba", "--method", "echo:pool=last"]
    folder = tmp_path / "killed" / "tiny-gpt2"
    for at in sorted(chance.randrange(1, 11) for _ in range(kills)):
        process, started = command(*spec, "--out", tmp_path / "killed"), time.monotonic()
        while len(list(folder.glob("*/*.json"))) < at:
            assert process.poll() is None and time.monotonic() - started < 120, "ended before it was killed"
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL
    kept = tree(tmp_path / "killed")
    assert at <= len([n for n in kept if n.endswith(".json")]) < 12
    times = {p: p.stat().st_mtime_ns for p in folder.glob("*/t0.json")}
    resumed = run(*spec, "--out", tmp_path / "killed")
    whole = run(*spec, "--out", tmp_path / "whole")
    assert (resumed.code, whole.code) == (0, 0) and resumed.out == whole.out
    assert tree(tmp_path / "killed") == tree(tmp_path / "whole") and len(tree(tmp_path / "whole")) == 12
    assert {p: p.stat().st_mtime_ns for p in times} == times, "a finished task was run again"
    assert not [p for p in (tmp_path / "killed").rglob("*") if p.suffix in (".writing", ".partial")]


def tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.suffix == ".json"}
