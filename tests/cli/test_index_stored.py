"""An index of stored vectors is that of the texts that they were made from."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.cli.conftest import Run

from afterword.search.index import Index

ROWS = 'n,text,channel\n1,The bank.,mail\n2," ",chat\n3,银行,chat\n3,river,chat\n'


def rows_of(folder: Path) -> pa.Table:
    return Index.open(folder).table.to_arrow().sort_by("id")


@pytest.mark.parametrize("output", ["v.parquet", "job/"])
def test_it_is_the_index_of_the_texts(run: Run, gpt2: Path, tmp_path: Path, output: str):
    (tmp_path / "t.csv").write_text(ROWS)
    usual, vectors = ("-m", gpt2, "--method", "classical"), tmp_path / output
    written = ("-o", f"{tmp_path}/{output}")
    assert run("embed", *usual, "-i", tmp_path / "t.csv", "--keep", "n,channel", *written).code == 1
    columns = ("--id", "n", "--keep", "channel")
    assert run("index", tmp_path / "a", *usual, *columns, "-i", tmp_path / "t.csv").code == 1
    ended = run("index", tmp_path / "b", *usual, *columns, "--from", vectors)
    assert ended.code == 1 and f"2 embedded; {tmp_path / 'b'} has 2 rows" in ended.err
    listed, wanted = ((tmp_path / name / "rejects.jsonl").read_text() for name in "ba")
    reason = "is blank" if output == "job/" else "has no vector"
    assert listed.splitlines()[0] == json.dumps({"row": 1, "line": 3 if output == "job/" else None, "reason": reason})
    assert len(listed.splitlines()) == len(wanted.splitlines()) == 2 and ended.last.startswith("2 rejected, listed in")
    assert rows_of(tmp_path / "a") == rows_of(tmp_path / "b")
    again = run("index", tmp_path / "b", *usual, *columns, "--from", vectors)
    assert again.code == 1 and "0 embedded, 2 known" in again.err and again.last.startswith("2 rejected")
    (tmp_path / "t.csv").write_text(ROWS.replace("1,The bank.", "1, "))
    assert (
        run("embed", *usual, "-i", tmp_path / "t.csv", "--keep", "n,channel", "-o", f"{tmp_path}/2{output}").code == 1
    )
    pruned = run("index", tmp_path / "b", *usual, *columns, "--from", tmp_path / f"2{output}", "--prune")
    assert pruned.code == 1 and rows_of(tmp_path / "b")["id"].to_pylist() == ["1", "3"]  # a rejected row is not pruned
    (tmp_path / "t.csv").write_text(ROWS)
    assert "0 embedded, 2 known" in run("index", tmp_path / "b", *usual, *columns, "-i", tmp_path / "t.csv").err


def test_the_ids_of_a_job_go_by_their_own_name(run: Run, gpt2: Path, tmp_path: Path):
    (tmp_path / "t.csv").write_text("n,text\n7,The bank.\n8,river\n")
    usual = ("-m", gpt2, "--method", "classical")
    assert run("embed", *usual, "-i", tmp_path / "t.csv", "--id", "n", "-o", f"{tmp_path}/job/").code == 0
    told = run("index", tmp_path / "a", *usual, "--id", "n", "--from", tmp_path / "job").last
    assert told == f"2 embedded; {tmp_path / 'a'} has 2 rows"
    assert rows_of(tmp_path / "a")["id"].to_pylist() == ["7", "8"]
    assert "0 embedded, 2 known" in run("index", tmp_path / "a", *usual, "--id", "n", "-i", tmp_path / "t.csv").last
    assert run("index", tmp_path / "b", *usual, "--id", "id", "--from", tmp_path / "job").code == 0
    assert rows_of(tmp_path / "b")["id"].to_pylist() == ["7", "8"]
    assert run("index", tmp_path / "d", *usual, "--from", tmp_path / "job").code == 0  # they are taken without a word
    assert rows_of(tmp_path / "d")["id"].to_pylist() == ["7", "8"]
    ended = run("index", tmp_path / "c", *usual, "--id", "m", "--from", tmp_path / "job")
    assert ended.code == 2 and "has no column 'm': it has row, text, id, problem, vector" in ended.last


@pytest.mark.parametrize(("words", "told"), [(["--chunk", "8"], "--chunk"), (["-i", "a.csv"], "--input")])
def test_what_needs_new_vectors_is_refused(run: Run, tmp_path: Path, words: list[str], told: str):
    ended = run("index", tmp_path / "a", "-m", "x", "--from", "v.parquet", *words)
    assert ended.code == 2 and told in ended.err


def test_vectors_of_another_method_are_refused(run: Run, gpt2: Path, tmp_path: Path):
    (tmp_path / "t.csv").write_text(ROWS)
    run("embed", "-m", gpt2, "--method", "echo", "-i", tmp_path / "t.csv", "-o", tmp_path / "v.parquet")
    ended = run("index", tmp_path / "a", "-m", gpt2, "--method", "classical", "--from", tmp_path / "v.parquet")
    assert ended.code == 2 and "v.parquet was made by" in ended.err


def test_rows_that_are_all_without_a_vector_make_no_index(run: Run, gpt2: Path, tmp_path: Path):
    (tmp_path / "t.csv").write_text(ROWS)
    usual, path = ("-m", gpt2, "--method", "classical"), tmp_path / "v.parquet"
    assert run("embed", *usual, "-i", tmp_path / "t.csv", "-o", path).code == 1
    table = pq.read_table(path)
    pq.write_table(table.slice(1, 1), path)
    ended = run("index", tmp_path / "a", *usual, "--from", path)
    assert ended.code == 2 and f"no row has a vector: {tmp_path / 'a'} is not made" in ended.last
    assert not (tmp_path / "a" / "rows.lance").exists()


def test_an_index_in_place_of_stored_vectors_is_named(run: Run, gpt2: Path, tmp_path: Path):
    (tmp_path / "t.txt").write_text("the bank\n")
    given = ["-m", gpt2, "--method", "classical"]
    assert run("index", tmp_path / "a", *given, "-i", tmp_path / "t.txt").code == 0
    ended = run("index", tmp_path / "b", *given, "--from", tmp_path / "a")
    assert ended.code == 2 and "a is an index, not a job" in ended.last
