"""``afterword index --status`` and ``--optimize``: what is in an index, without its model."""

import json
from pathlib import Path

from tests.cli.conftest import Run


def test_status_needs_no_model(run: Run, gpt2: Path, tmp_path: Path):
    (tmp_path / "t.txt").write_text("the bank\nthe river\n")
    assert run("index", tmp_path / "a", "-m", gpt2, "--method", "classical", "-i", tmp_path / "t.txt").code == 0
    found = json.loads(run("index", tmp_path / "a", "--status", "--json").out)
    assert (found["rows"], found["searches"], found["text search"]) == (2, "exact", "English")
    assert run("index", tmp_path / "a", "--optimize").code == 0
