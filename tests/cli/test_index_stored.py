"""An index of stored vectors is that of the texts that they were made from."""

from pathlib import Path

import pyarrow as pa
import pytest
from tests.cli.conftest import Run

from afterword.index.index import Index

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
    told = f"2 embedded, 1 without a vector; {tmp_path / 'b'} has 2 rows; searches: exact"
    assert ended.code == 1 and told in ended.err
    assert rows_of(tmp_path / "a") == rows_of(tmp_path / "b")
    again = run("index", tmp_path / "b", *usual, *columns, "--from", vectors)
    assert "0 embedded, 2 known, 1 without a vector" in again.err
    assert "0 embedded, 2 known" in run("index", tmp_path / "b", *usual, *columns, "-i", tmp_path / "t.csv").err


@pytest.mark.parametrize(
    ("words", "told"), [(["--chunk", "8"], "--chunk asks for new"), (["-i", "a.csv"], "--input asks")]
)
def test_what_needs_new_vectors_is_refused(run: Run, tmp_path: Path, words: list[str], told: str):
    ended = run("index", tmp_path / "a", "-m", "x", "--from", "v.parquet", *words)
    assert ended.code == 2 and told in ended.err


def test_vectors_of_another_method_are_refused(run: Run, gpt2: Path, tmp_path: Path):
    (tmp_path / "t.csv").write_text(ROWS)
    run("embed", "-m", gpt2, "--method", "echo", "-i", tmp_path / "t.csv", "-o", tmp_path / "v.parquet")
    ended = run("index", tmp_path / "a", "-m", gpt2, "--method", "classical", "--from", tmp_path / "v.parquet")
    assert ended.code == 2 and "v.parquet was made by" in ended.err
