"""``analyse impact``: what is printed is what the function finds."""

import gzip
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from tests.cli.conftest import Run
from tests.papers.drawn import drawn

from afterword.cli import progress


def test_impact(run: Run, bert: Path, dev: Path, tmp_path: Path):
    words = ("analyse", "impact", "-m", bert, "--pairs", dev, "--first", 3, "--heads", 2)
    ended = run(*words, "--plot", tmp_path / "a.svg")
    assert (ended.code, ended.err) == (0, "")
    found = json.loads(run(*words, "--json").out)
    lines = [line.split() for line in ended.out.splitlines()[2:]]
    assert [line[:2] for line in lines[:3]] == [["impact", "matrix"], *(["head", f["name"]] for f in found[1:])]
    assert [line[-1] for line in lines[:3]] == [f"{100 * f['spearman']:.2f}" for f in found] and len(found) == 3
    first = found[0]["texts_measured"][0]
    assert np.array(first["matrix"]).shape == (len(first["tokens"]),) * 2 and len(first["tfidf"]) > 0
    shown = " ".join(drawn(tmp_path / "a.svg"))
    assert "bert: impact matrix" in shown and "in: a 0" in shown and "masked token" in shown
    (tmp_path / "corpus.jsonl").write_text('{"text": "a b"}\n{"text": "b"}\n')
    counted = json.loads(run(*words, "--json", "--corpus", tmp_path / "corpus.jsonl").out)
    assert counted[0]["texts_measured"][0]["tfidf"] != first["tfidf"]


def test_a_long_run_says_how_far_it_is(run: Run, bert: Path, dev: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(progress, "EVERY", 0.0)
    ended = run("analyse", "impact", "-m", bert, "--pairs", dev, "--first", 3, "--heads", 0)
    assert ended.code == 0
    assert [line.partition(", left ")[0] for line in ended.err.splitlines()] == [
        f"impact matrices: {done} of 3 texts" for done in (1, 2)
    ]


def test_two_models_and_a_single_text_of_a_packed_file(run: Run, bert: Path, tmp_path: Path):
    shutil.copytree(bert, tmp_path / "other")
    with gzip.open(tmp_path / "texts.jsonl.gz", "wt") as file:
        file.write('{"text": "the thin line"}\n')
    words = ("analyse", "impact", "-m", bert, "-m", tmp_path / "other", "-i", tmp_path / "texts.jsonl.gz", "--heads", 0)
    ended = run(*words, "--plot", tmp_path / "a.svg")
    assert {path.name for path in tmp_path.glob("a*.svg")} == {"a-bert.svg", "a-other.svg"}
    lines = ended.out.splitlines()
    assert lines[0].startswith("bert: no correlation with TF-IDF: 1 of 1 texts left out") and len(lines) == 2
    assert lines[1].startswith("other: ") and "nan" not in ended.out
    found = json.loads(run(*words, "--json").out)
    assert [(f["model"], f["pearson"], f["undefined"]) for f in found] == [("bert", None, 1), ("other", None, 1)]


def test_texts_without_a_correlation_are_refused(run: Run, bert: Path, tmp_path: Path):
    (tmp_path / "same.txt").write_text("the thin line\n" * 5)
    (tmp_path / "two.txt").write_text("the thin line\nthe\n")
    for verb in ("impact", "heads"):
        ended = run("analyse", verb, "-m", bert, "-i", tmp_path / "same.txt")
        assert (ended.code, ended.out) == (2, "") and len(ended.err.splitlines()) == 1
        assert "one TF-IDF in 5 texts" in ended.err and "pass --corpus" in ended.err
        ended = run("analyse", verb, "-m", bert, "-i", tmp_path / "two.txt")
        assert ended.code == 0 and "mean over 1 text " in ended.out, ended.out
