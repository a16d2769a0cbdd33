"""``analyse words``: what is printed is what the function finds."""

import json
from pathlib import Path

from tests.cli.conftest import Run


def test_words(run: Run, llama: Path, tmp_path: Path):
    (tmp_path / "texts.txt").write_text("the thin line\nin the tin\n")
    (tmp_path / "counts.txt").write_text("the 10\n")
    words = ("analyse", "words", "-m", llama, "-i", tmp_path / "texts.txt", "--frequencies", tmp_path / "counts.txt")
    ended = run(*words)
    assert (ended.code, ended.err) == (0, "")
    found = json.loads(run(*words, "--json").out)[0]
    lines = ended.out.splitlines()
    assert lines[0].startswith(f"{llama.name}: {found['share']:.2%} of 2 texts have a word that is not among the 100")
    assert [line.split()[0] for line in lines[2:]] == [w or "-" for w in found["words"]]
