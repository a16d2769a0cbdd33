"""Recall is measured by so many texts of the index, or by the queries of a file."""

from pathlib import Path

import pytest
from tests.cli.conftest import Run

from afterword.index.index import Index


def test_queries_of_a_file_are_all_searched_for(run: Run, gpt2: Path, tmp_path: Path):
    rows, queries = tmp_path / "t.txt", tmp_path / "q.csv"
    rows.write_text("".join(f"text {i}\n" for i in range(300)))
    queries.write_text("text\ntext 7\nthe bank\n")  # the first is a row of the index
    usual = ("index", tmp_path / "a", "-m", gpt2, "--method", "classical")
    ended = run(*usual, "-i", rows, "--kind", "sq", "--queries", queries)
    assert ended.code == 0 and "by 2 queries" in ended.last
    queries.write_text("text\nriver\n")
    assert "by 1 queries" in run(*usual, "--measure", "--queries", queries).out
    assert "by 20 queries" in run(*usual, "--measure", "--queries", 20).out
    measured = Index.open(tmp_path / "a").info.measured
    assert measured is not None and measured.queries == 20
    assert run("index", tmp_path / "b", *usual[2:], "-i", rows).last.endswith("searches: exact")
    told = run("index", tmp_path / "b", *usual[2:], "--measure", "--queries", queries).out
    assert told == "exact: every search compares all vectors, so recall is 1\n"


@pytest.mark.parametrize(
    ("queries", "told"),
    [
        ("0", "0 queries measure nothing"), ("none.txt", "'none.txt' is no file: give a number"),
        ("-5", "'-5' is no file"), ("q.txt", "q.txt: line 2 is blank: write a query there"),
        ("empty.txt", "empty.txt holds no query"),
    ],
)  # fmt: skip
def test_what_holds_no_queries_is_refused(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, queries: str, told: str
):
    (tmp_path / "q.txt").write_text("a\n \n")
    (tmp_path / "empty.txt").write_text("")
    monkeypatch.chdir(tmp_path)
    ended = run("index", "a", "-m", "x", "-i", "q.txt", "--queries", queries)
    assert ended.code == 2 and told in ended.err and not Path("a").exists()
