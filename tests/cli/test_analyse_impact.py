"""``analyse impact``: what is printed is what the function finds."""

import json
from pathlib import Path

from tests.cli.conftest import Run


def test_impact(run: Run, bert: Path, dev: Path, tmp_path: Path):
    words = ("analyse", "impact", "-m", bert, "--pairs", dev, "--first", 3, "--heads", 2)
    ended = run(*words, "--plot", tmp_path / "a.svg")
    assert (ended.code, ended.err) == (0, "")
    found = json.loads(run(*words, "--json").out)
    lines = [line.split() for line in ended.out.splitlines()[2:]]
    assert [line[:2] for line in lines] == [["impact", "matrix"], *(["head", f["name"]] for f in found[1:])]
    assert [line[-1] for line in lines] == [f"{100 * f['spearman']:.2f}" for f in found] and len(found) == 3
    assert "masked as well" in (tmp_path / "a.svg").read_text()
    (tmp_path / "corpus.txt").write_text("a b\nb\n")
    counted = json.loads(run(*words, "--json", "--corpus", tmp_path / "corpus.txt").out)
    assert counted[0]["pearson"] != found[0]["pearson"]
