"""``analyse dependency``: what is printed is what the function finds."""

import json
from pathlib import Path

from tests.cli.conftest import Run

from afterword import Encoder, bellm
from afterword.papers.dependency import dependency


def test_dependency_of_two_methods(run: Run, llama: Path, tmp_path: Path):
    (tmp_path / "texts.txt").write_text("the thin line\nin the tin\n")
    words = ("analyse", "dependency", "-m", llama, "-i", tmp_path / "texts.txt", "--method", "classical")
    spec = (*words, "--method", "bellm:template=none")
    ended = run(*spec, "--plot", tmp_path / "a.png")
    assert (ended.code, ended.err) == (0, "") and (tmp_path / "a.png").stat().st_size > 5000
    wanted = dependency(Encoder.load(llama, bellm(template=None)), ["the thin line", "in the tin"])
    name, pivot, mean = ended.out.splitlines()[2].split()[:3]
    assert (name, pivot, mean) == ("bellm:template=none", "last", f"{wanted.mean:.3f}")
    found = json.loads(run(*spec, "--json").out)
    assert [f["name"] for f in found] == ["classical", "bellm:template=none"]
    assert found[1]["values"] == wanted.values.tolist()


def test_dependency_of_two_models(run: Run, llama: Path, bert: Path, dev: Path):
    ended = run("analyse", "dependency", "-m", llama, "-m", bert, "--pairs", dev, "--method", "classical", "--json")
    found = json.loads(ended.out)
    assert [(f["name"], f["pivot"]) for f in found] == [(llama.name, "last"), ("bert", "first")]
    assert len(found[0]["values"]) == 30 + 7  # different texts
