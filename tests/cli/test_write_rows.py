import json
from pathlib import Path

import pytest
from tests.cli.conftest import Run
from tests.disk import disk_of


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "npy"])
def test_a_full_disk_leaves_no_half_file(run: Run, gpt2: Path, tmp_path: Path, kind: str):
    source, out = tmp_path / "in.txt", tmp_path / f"out.{kind}"
    source.write_text("".join(f"text number {i}\n" for i in range(600)))
    out.write_bytes(b"what was there before")
    spec = ("embed", "-m", gpt2, "--method", "classical", "-i", source, "-o", out, "--window", 64)
    with disk_of(60_000):
        ended = run(*spec)
    assert ended.code == 2 and ended.out == ""
    partial = tmp_path / "out.jsonl.partial"
    kept = "nothing of it was kept"
    if kind == "jsonl":
        rows = [json.loads(line) for line in partial.read_text().splitlines()]  # every line is whole
        assert [row["text"] for row in rows] == [f"text number {i}" for i in range(len(rows))] and len(rows) > 10
        kept = f"{len(rows)} finished rows are kept in {partial}"
        partial.unlink()
    assert ended.err == f"error: {out} cannot be written whole: File too large; {kept}\n"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.txt", out.name]
    assert out.read_bytes() == b"what was there before"
    assert run(*spec).code == 0 and out.stat().st_size > 60_000


def test_a_full_disk_under_the_list_of_rejected_rows(run: Run, gpt2: Path, tmp_path: Path):
    source = tmp_path / "in.txt"
    source.write_text("\n" * 3000)
    with disk_of(50_000):
        ended = run(
            "embed", "-m", gpt2, "--method", "classical", "-i", source, "-o", tmp_path / "out.jsonl", "--window", 10
        )
    assert ended.code == 2 and "rejects.jsonl cannot be written whole" in ended.last
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.txt", "out.jsonl.partial"]


def test_rejected_rows_where_the_user_wants_them(run: Run, gpt2: Path, tmp_path: Path):
    ended = run("embed", "-m", gpt2, "--method", "classical", "dog", "", "--rejects", tmp_path / "bad.jsonl")
    assert ended.code == 1 and len(ended.rows) == 2
    assert json.loads((tmp_path / "bad.jsonl").read_text()) == {"row": 1, "line": 2, "reason": "is empty"}
