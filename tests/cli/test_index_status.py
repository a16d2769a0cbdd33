"""``afterword index --status`` and ``--optimize``: what is in an index, without its model."""

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Run


def test_status_needs_no_model(run: Run, gpt2: Path, tmp_path: Path):
    (tmp_path / "t.txt").write_text("the bank\nthe river\n")
    assert run("index", tmp_path / "a", "-m", gpt2, "--method", "classical", "-i", tmp_path / "t.txt").code == 0
    found = json.loads(run("index", tmp_path / "a", "--status", "--json").out)
    assert (found["rows"], found["vector index"], found["text search"]) == (2, "no", "English")
    assert run("index", tmp_path / "a", "--optimize").code == 0


@pytest.mark.parametrize("words", [["--prune"], ["-i", "t.txt"], ["--from", "v"], ["--keep", "a"]])
@pytest.mark.parametrize("verb", ["--status", "--optimize"])
def test_options_of_rows_are_refused_where_no_row_is_read(run: Run, tmp_path: Path, verb: str, words: list[str]):
    ended = run("index", tmp_path / "a", verb, *words)
    assert ended.code == 2 and f"{verb} takes none" in ended.err
