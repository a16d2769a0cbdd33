"""``afterword index --status`` and ``--optimize``: what is in an index, without its model."""

import json
import os
from pathlib import Path

import pytest
from tests.cli.conftest import Run


def test_status_needs_no_model(run: Run, gpt2: Path, tmp_path: Path):
    (tmp_path / "t.txt").write_text("the bank\nthe river\n")
    assert run("index", tmp_path / "a", "-m", gpt2, "--method", "classical", "-i", tmp_path / "t.txt").code == 0
    found = json.loads(run("index", tmp_path / "a", "--status", "--json").out)
    assert (found["rows"], found["searches"], found["text search"]) == (2, "exact", "English")
    assert run("index", tmp_path / "a", "--optimize").code == 0


def test_a_write_that_was_cut_short_is_told_of_and_undone_by_the_next_update(run: Run, gpt2: Path, tmp_path: Path):
    """LanceDB commits it where a disk is full, and a kill at that moment leaves it."""
    given = ["-m", gpt2, "--method", "classical", "-i", tmp_path / "t.txt"]
    (tmp_path / "t.txt").write_text("the bank\nthe river\n")
    assert run("index", tmp_path / "a", *given).code == 0
    (tmp_path / "t.txt").write_text("the bank\nthe river\na tree\n")
    assert run("index", tmp_path / "a", *given).code == 0
    (newest,) = (
        f for f in (tmp_path / "a" / "rows.lance" / "data").iterdir() if "tree" in f.read_bytes().decode("latin")
    )
    os.truncate(newest, newest.stat().st_size - 1)
    for words in (["--status"], ["--optimize"]):
        ended = run("index", tmp_path / "a", *words)
        told = "the end of a file is missing, as on a full disk; the `afterword index` that made it mends it"
        assert ended.code == 2 and ended.last == f"error: {tmp_path / 'a'} cannot be read: {told}"
    ended = run("search", tmp_path / "a", "tree", "--by", "vector")
    assert ended.code == 2 and "its `afterword index` undoes a write that was cut short" in ended.last
    ended = run("index", tmp_path / "a", *given)
    assert ended.code == 0 and "warning: the last write of " in ended.err and "1 embedded, 2 known" in ended.last
    assert "tree" in run("search", tmp_path / "a", "tree").out


@pytest.mark.parametrize("words", [["--prune"], ["-i", "t.txt"], ["--from", "v"], ["--keep", "a"]])
@pytest.mark.parametrize("verb", ["--status", "--optimize"])
def test_options_of_rows_are_refused_where_no_row_is_read(run: Run, tmp_path: Path, verb: str, words: list[str]):
    ended = run("index", tmp_path / "a", verb, *words)
    assert ended.code == 2 and f"{verb} takes none" in ended.err
