"""``analyse heads``: what is printed is what the functions find."""

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Run
from tests.tiny import tiny

from afterword import Encoder, ditto
from afterword.tasks.pairs import read_pairs
from afterword.tune import score


def test_heads_by_score(run: Run, bert: Path, dev: Path, tmp_path: Path):
    words = ("analyse", "heads", "-m", bert, "--dev", dev, "--test", dev, "--test", dev)
    ended = run(*words, "--top", 2, "--head", "2-3", "--plot", tmp_path / "a.svg")
    assert (ended.code, ended.err) == (0, "") and "is first by" in (tmp_path / "a.svg").read_text()
    found = json.loads(run(*words, "--json").out)
    assert len(found) == 16 and [f["dev"] for f in found] == sorted((f["dev"] for f in found), reverse=True)
    best = found[0]
    wanted = score(Encoder.load(bert, ditto(best["name"])), read_pairs(dev))
    assert best["dev"] == pytest.approx(wanted, abs=1e-3) and best["test"] == pytest.approx(best["dev"])
    lines = [line.split() for line in ended.out.splitlines()[3:]]
    assert [line[0] for line in lines[:2]] == [f["name"] for f in found[:2]] and lines[-1][0] == "2-3"
    assert lines[0][2:] == [f"{100 * best[key]:.2f}" for key in ("pearson", "spearman", "dev", "test")]


def test_heads_without_labels_and_what_is_wrong(run: Run, bert: Path, dev: Path, tmp_path: Path):
    (tmp_path / "texts.txt").write_text("the thin line\nin the tin\n")
    (tmp_path / "flat.csv").write_text("sentence1,sentence2,score\na,b,1\nb,c,1\n")
    (tmp_path / "one.csv").write_text("sentence1,sentence2,score\na,b,1\n")
    texts = ("analyse", "heads", "-m", bert, "-i", tmp_path / "texts.txt")
    found = json.loads(run(*texts, "--json").out)
    assert [f["pearson"] for f in found] == sorted((f["pearson"] for f in found), reverse=True)
    mamba = tiny("mamba", tmp_path / "mamba")
    for words, said in (
        ((*texts, "--head", "9-1"), "head 9-1 (layer 8, head 0 from 0) does not exist: the model has 4 layers of 4"),
        ((*texts, "--head", "x"), "write layer-head, both from 1"),
        (("analyse", "heads", "-m", bert, "--dev", tmp_path / "flat.csv"), "all 2 pairs have the score 1"),
        (("analyse", "heads", "-m", bert, "--dev", tmp_path / "one.csv"), "1 pair: a correlation needs at least 2"),
        (("analyse", "heads", "-m", mamba, "--dev", dev), "attention"),
    ):
        ended = run(*words)
        assert ended.code == 2 and len(ended.err.splitlines()) == 1 and said in ended.err, ended.err
