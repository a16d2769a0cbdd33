"""The command `duplicates`: one of each is kept, and the rest say what they repeat."""

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Run

from afterword.cli.duplicates import by_pairs
from afterword.cli.progress import RowsBar

TEXTS = [
    "the parcel is late",
    "the parcel is late!",
    "河边的银行",
    "",
    "the parcel is late",
    "河边的银行。",
    "interest rates rose",
]


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    (tmp_path / "t.txt").write_text("\n".join(TEXTS) + "\n", "utf-8")
    return tmp_path / "t.txt"


@pytest.fixture
def vectors(run: Run, texts: Path) -> Path:
    run("embed", "-m", "afterword-mini", "-i", texts, "-o", texts.with_suffix(".parquet"))
    return texts.with_suffix(".parquet")


def rows_of(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_repeats_of_stored_vectors(run: Run, vectors: Path, tmp_path: Path):
    kept, repeats = tmp_path / "kept.jsonl", tmp_path / "repeats.jsonl"
    ended = run("duplicates", "-i", vectors, "--over", 0.8, "-o", kept, "--repeats", repeats)
    assert ended.code == 0 and ended.err == f"no vector: 1 of 7 rows of {vectors}\n"
    lines = ended.out.splitlines()
    assert lines[0] == "6 rows: 3 kept, 3 repeat one of 2 of them (cosine 0.8 or more)"
    assert lines[2].split()[:3] == ["3x", "0", "the"] and lines[5].split() == ["2x", "2", "河边的银行"]
    assert rows_of(kept) == [{"row": n, "text": TEXTS[n]} for n in (0, 2, 6)]
    found = {row["row"]: row for row in rows_of(repeats)}
    assert {n: row["repeats"] for n, row in found.items()} == {1: 0, 4: 0, 5: 2}
    assert found[4]["cosine"] == 1.0 and 0.8 <= found[5]["cosine"] < 1 and found[5]["text"] == TEXTS[5]


def test_texts_are_embedded_with_a_model(run: Run, texts: Path, vectors: Path):
    ended = run("duplicates", "-m", "afterword-mini", "-i", texts, "--over", 0.8, "--json")
    stored = run("duplicates", "-i", vectors, "--over", 0.8, "--json")
    assert ended.code == 1 and "rejected: 1 of 7 rows" in ended.err
    lines, rows = json.loads(ended.out), json.loads(stored.out)
    assert lines["without_vector"] == rows["without_vector"] == 1
    of_rows = [{"line": row.pop("row") + 1, **row, "repeats": row["repeats"] + 1} for row in rows["repeats"]]
    assert lines["repeats"] == of_rows and lines["kept"] == rows["kept"]


def test_a_bar_moves_by_the_pairs_that_were_compared(run: Run, vectors: Path):
    assert "100 %" in run("duplicates", "-i", vectors, "--progress").err
    bar, seen = RowsBar(100, show=False), []
    done = by_pairs(bar, 100)
    for more in (50, 40, 10):
        done(more)
        seen.append(round(bar.done))
    assert seen == [75, 99, 100]


def test_over_1_only_equal_vectors_repeat(run: Run, vectors: Path):
    found = json.loads(run("duplicates", "-i", vectors, "--over", 1, "--json").out)
    assert (found["rows"], found["kept"], [row["row"] for row in found["repeats"]]) == (6, 5, [4])


def test_nothing_repeats(run: Run, tmp_path: Path):
    (tmp_path / "t.txt").write_text("one\ninterest rates rose\n")
    ended = run("duplicates", "-m", "afterword-mini", "-i", tmp_path / "t.txt", "--over", 1)
    assert ended.code == 0 and ended.out == "2 rows: 2 kept, 0 repeat one of 0 of them (cosine 1 or more)\n"


@pytest.mark.parametrize("over", ["0", "-1", "1.1", "nan"])
def test_a_bad_threshold_is_refused_before_anything_is_read(run: Run, tmp_path: Path, over: str):
    ended = run("duplicates", "-i", tmp_path / "none.parquet", "--over", over)
    assert ended.code == 2 and str(float(over)) in ended.err


def test_outputs_are_checked(run: Run, vectors: Path, tmp_path: Path):
    both = tmp_path / "x.jsonl"
    ended = run("duplicates", "-i", vectors, "-o", both, "--repeats", both)
    assert ended.code == 2 and "is the file of --output" in ended.err
    both.write_text("mine")
    ended = run("duplicates", "-i", vectors, "-o", both)
    assert ended.code == 2 and "exists: give another name" in ended.err and both.read_text() == "mine"
