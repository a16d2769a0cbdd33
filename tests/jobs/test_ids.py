"""Ids that are missing or repeated are counted at the end of a job."""

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Run

from afterword.jobs.job import IdCounts, Job, count_ids

ROWS = [("a", "one"), ("b", "two"), ("a", "three"), (None, "four"), ("", "five"), ("b", ""), ("c", "six. seven."),
        ("a", "eight"), ("-1", "nine"), ("-2", "ten")]  # fmt: skip


def write(path: Path, rows: list[tuple[str | None, str]]) -> Path:
    path.write_text("".join(json.dumps({"n": id, "text": text}) + "\n" for id, text in rows))
    return path


@pytest.mark.parametrize("more", [[], ["--chunk", "sentences"]])
def test_they_are_counted_and_told_at_the_end(run: Run, llama: Path, tmp_path: Path, more: list[object]) -> None:
    file = write(tmp_path / "in.jsonl", ROWS)
    words = ("embed", "-m", llama, "-i", file, "--id", "n", "-o", f"{tmp_path}/job/", "--shard-rows", 2, *more)
    ended = run(*words)
    assert count_ids(Job.open(tmp_path / "job")) == IdCounts(
        missing=2, repeated=2
    )  # b once: its second row is rejected
    told = "warning: 2 rows have no id, 2 rows have the id of an earlier row: --id n does not name each row"
    assert ended.code == 1 and ended.last == told, ended.err
    assert run(*words).last == told


def test_nothing_is_told_where_each_id_names_its_row(run: Run, llama: Path, tmp_path: Path) -> None:
    file = write(tmp_path / "in.jsonl", [(f"r{i}", "a text") for i in range(5)])
    words = ("embed", "-m", llama, "-i", file, "-o", f"{tmp_path}/job/", "--shard-rows", 2)
    ended = run(*words, "--id", "n")
    assert ended.code == 0 and "does not name" not in ended.err
    assert count_ids(Job.open(tmp_path / "job")) == IdCounts(0, 0)
    assert run(*words[:-3], f"{tmp_path}/none/").code == 0


def test_numbers_are_ids_too(run: Run, llama: Path, tmp_path: Path) -> None:
    file = tmp_path / "in.jsonl"
    file.write_text("".join(json.dumps({"n": n, "text": "a"}) + "\n" for n in (-1, -2, 0, 1, 1, None)))
    run("embed", "-m", llama, "-i", file, "--id", "n", "-o", f"{tmp_path}/job/")
    assert count_ids(Job.open(tmp_path / "job")) == IdCounts(1, 1)
