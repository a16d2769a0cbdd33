"""Shards are cut by the input alone, and a worker reads just the rows of its shard."""

import gzip
import json
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples

from afterword.errors import DataError, JobError
from afterword.files.lines import FileForm
from afterword.jobs.job import Shard, ShardRows, cut, hashes, shards_of
from afterword.jobs.rows import Inputs, files_of


def jsonl(path: Path, texts: list[str]) -> Path:
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return path


def plan(inputs: Inputs, rows: int) -> list[Shard]:
    return shards_of(cut(inputs, rows))


@examples(15)
@given(sizes=st.lists(st.integers(0, 9), min_size=1, max_size=3), rows=st.integers(1, 5), seed=st.integers(0, 99))
def test_the_shards_are_all_rows_in_order(tmp_path: Path, sizes: list[int], rows: int, seed: int) -> None:
    files = tuple(jsonl(tmp_path / f"{i}.jsonl", [f"{i} {k}" for k in range(n)]) for i, n in enumerate(sizes))
    inputs = Inputs(files)
    shards = plan(inputs, rows)
    assert [s.number for s in shards] == list(range(len(shards))) and sum(s.rows for s in shards) == sum(sizes)
    assert all(0 < s.rows <= rows for s in shards) or not sum(sizes)
    read, found = ShardRows(inputs), {}
    for shard in Random(seed).sample(shards, len(shards)):
        found[shard.number] = [item.text for item in read.of(shard)]
    texts = [f"{i} {k}" for i, n in enumerate(sizes) for k in range(n)]
    assert [text for n in sorted(found) for text in found[n]] == texts
    assert [s.row for s in shards] == [sum(t.rows for t in shards[:n]) for n in range(len(shards))]


def test_long_texts_make_short_shards(tmp_path: Path) -> None:
    inputs = Inputs((jsonl(tmp_path / "a.jsonl", ["x" * 2**23] * 5),))
    assert [shard.rows for shard in plan(inputs, 100)] == [2, 2, 1]


def test_tables_with_newlines_gzip_and_other_encodings(tmp_path: Path) -> None:
    table = 'id,text\n1,"a\nb"\n2,\n3,é\n4,c\n'
    (tmp_path / "a.csv").write_text(table)
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(table.encode()))
    (tmp_path / "c.csv").write_bytes(table.encode("cp1252"))
    for name, form in (("a.csv", FileForm()), ("b.csv.gz", FileForm()), ("c.csv", FileForm(encoding="cp1252"))):
        inputs = Inputs((tmp_path / name,), form=form, keep=("id",))
        shards, read = plan(inputs, 2), ShardRows(inputs)
        assert [(s.first, s.rows) for s in shards] == [(0, 2), (2, 2)]
        assert [item.text for item in read.of(shards[1])] == ["é", "c"]
        first = [(i.text, i.problem, i.kept["id"]) for i in read.of(shards[0])]
        assert first == [("a\nb", None, "1"), ("", "is empty", "2")]


def test_files_of_folders(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    a, b = jsonl(tmp_path / "in" / "b.jsonl", ["b"]), jsonl(tmp_path / "in" / "a.jsonl", ["a"])
    (tmp_path / "in" / "notes.md").write_text("no")
    assert files_of([tmp_path / "in"]) == (b, a)
    with pytest.raises(JobError, match="given twice"):
        files_of([a, tmp_path / "in"])
    (tmp_path / "none").mkdir()
    with pytest.raises(JobError, match="holds no"):
        files_of([tmp_path / "none"])


def test_columns_of_other_types(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,text\n1,a\n")
    (tmp_path / "b.jsonl").write_text('{"id": 1, "text": "a"}\n')
    with pytest.raises(JobError, match=r"'id' of .*b.jsonl is json, and of .*a.csv text"):
        Inputs((tmp_path / "a.csv", tmp_path / "b.jsonl"), keep=("id",)).kinds()
    with pytest.raises(DataError, match="no column 'nope'"):
        Inputs((tmp_path / "a.csv",), keep=("nope",)).kinds()


def test_a_file_with_fewer_rows_than_planned(tmp_path: Path) -> None:
    inputs = Inputs((jsonl(tmp_path / "a.jsonl", ["a", "b", "c"]),))
    shards, before = plan(inputs, 2), hashes(inputs.files)
    jsonl(tmp_path / "a.jsonl", ["a", "b"])
    assert hashes(inputs.files) != before
    with pytest.raises(JobError, match=r"a\.jsonl has changed"):
        ShardRows(inputs).of(shards[1])
