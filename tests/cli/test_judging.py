"""``afterword search --queries --qrels``: figures, what is left out, and mistakes in one line."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Run

pytest.importorskip("lancedb")

TEXTS = ["the river bank", "a bank that lends", "a late parcel", "rates rose", "a tree"]
QUERIES = {"a": "river", "b": "parcel", "c": "nothing judged"}


def put(file: Path, rows: list[dict[str, Any]]) -> Path:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return file


@pytest.fixture
def given(run: Run, gpt2: Path, tmp_path: Path) -> list[object]:
    """The words of a command that judges a small index."""
    rows = put(tmp_path / "t.jsonl", [{"n": i, "text": text} for i, text in enumerate(TEXTS)])
    made = run("index", tmp_path / "i", "-m", gpt2, "-i", rows, "--id", "n", "--keep", "n", "--chunk", "sentences")
    assert made.code == 0, made.err
    queries = put(tmp_path / "q.jsonl", [{"_id": id, "text": text} for id, text in QUERIES.items()])
    (tmp_path / "test.tsv").write_text("query-id\tcorpus-id\tscore\na\t0\t2\nb\t2\t1\n")
    return ["search", tmp_path / "i", "--queries", queries, "--qrels", tmp_path / "test.tsv"]


def test_a_row_for_each_way_and_the_number_of_queries(run: Run, given: list[object]):
    ended = run(*given)
    assert ended.code == 0, ended.err
    head, *rows, last = ended.out.splitlines()
    assert head.split() == ["by", "nDCG@10", "recall@10", "MRR@10"]
    assert [row.split()[0] for row in rows] == ["hybrid", "vector", "text"]
    assert rows[2].split() == ["text", "1.0000", "1.0000", "1.0000"]
    assert last == "2 queries; left out: 1 without a judgement"


def test_json_has_the_same_figures(run: Run, given: list[object]):
    (found,) = run(*given, "--json").rows
    table = run(*given).out.splitlines()[1:-1]
    assert {by: [f"{value:.4f}" for value in one.values()] for by, one in found["by"].items()} == {
        by: values for by, *values in (row.split() for row in table)
    }
    assert {name: found[name] for name in found if name != "by"} == {
        "queries": 2, "without_judgement": 1, "without_relevant": 0, "not_in_index": 0
    }  # fmt: skip


def test_by_and_where_hold_and_what_cannot_be_found_is_told(run: Run, given: list[object]):
    ended = run(*given, "--by", "text", "--where", "n != '0'", "--exact")
    assert ended.out.splitlines()[1:] == [
        "text   0.5000     0.5000  0.5000",
        "2 queries; left out: 1 without a judgement",
    ]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["river"], "QUERY"), (["-i", "a.txt"], "--input"), (["--top", "5"], "--top"),
        (["--column", "a"], "--column"), (["--encoding", "cp1252"], "--encoding"),
    ],
)  # fmt: skip
def test_an_option_without_effect_is_refused(run: Run, given: list[object], words: list[str], told: str):
    ended = run(*given, *words)
    assert ended.code == 2 and told in ended.err and len(ended.err.splitlines()) == 1


def test_both_files_are_needed(run: Run, given: list[object]):
    assert "--qrels" in run(*given[:4]).err
    assert "--queries" in run(*given[:2], *given[4:]).err


def test_a_broken_file_is_named_by_its_line(run: Run, given: list[object]):
    Path(str(given[-1])).write_text("query-id\tcorpus-id\tscore\na\t0\tmuch\n")
    ended = run(*given)
    assert ended.code == 2 and ended.err.endswith("test.tsv:2: the score 'much' is not a number\n")
