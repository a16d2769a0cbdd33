"""Texts and vectors are gathered from what `embed` wrote, or embedded; lists are written by the ending of the name."""

import csv
import json
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from tests.cli.conftest import Run
from tests.search.rows import info, reader

from afterword.cli.gathered import check_output, gather, write_listing
from afterword.cli.inputs import read_form
from afterword.cli.model import ModelChoice
from afterword.search.index import Index

SETTINGS = {"prompt": None, "batch_tokens": None, "on_long": "warn"}
FORM = read_form(None, None, False)


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    (tmp_path / "t.txt").write_text("猫坐下了\na cat\n\n猫坐下了\nrain\n", "utf-8")
    return tmp_path / "t.txt"


def test_stored_vectors_are_what_the_texts_give(run: Run, texts: Path):
    path = texts.with_suffix(".parquet")
    assert run("embed", "-m", "afterword-mini", "-i", texts, "-o", path).code == 1
    stored = gather(path, None, None, SETTINGS, None, None, FORM)
    embedded = gather(texts, ModelChoice("afterword-mini"), None, SETTINGS, None, None, FORM)
    assert stored.vectors.tobytes() == embedded.vectors.tobytes()
    for found, rejected in ((stored, False), (embedded, True)):
        assert [list(lines) for lines in found.lines] == [[1, 4], [2], [5]] and found.rows == 4
        assert found.texts([0, 2]) == ["猫坐下了", "rain"]
        assert (found.missing, found.rejected, len(found.notes) > 0) == (1, rejected, True)


def test_a_file_of_several_methods_needs_one(run: Run, texts: Path):
    path = texts.with_suffix(".parquet")
    run("embed", "-m", "afterword-mini", "--method", "classical", "--method", "echo", "-i", texts, "-o", path)
    assert gather(path, None, "echo", SETTINGS, None, None, FORM).rows == 4
    for method in (None, "reba"):
        with pytest.raises(typer.BadParameter, match="holds those of classical, echo"):
            gather(path, None, method, SETTINGS, None, None, FORM)


def test_vectors_with_a_model_and_texts_without_one(run: Run, texts: Path):
    path = texts.with_suffix(".parquet")
    run("embed", "-m", "afterword-mini", "-i", texts, "-o", path)
    with pytest.raises(typer.BadParameter, match=r"t\.parquet"):
        gather(path, ModelChoice("afterword-mini"), None, SETTINGS, None, None, FORM)
    with pytest.raises(typer.BadParameter, match=r"t\.txt"):
        gather(texts, None, None, SETTINGS, None, None, FORM)


def test_the_rows_of_an_index_are_named_by_their_ids(run: Run, tmp_path: Path):
    pytest.importorskip("lancedb")
    texts = ["the bank", "河边的银行", "the bank", "rain"]
    Index.create(tmp_path / "a", reader(texts), info())
    found = gather(tmp_path / "a", None, None, SETTINGS, None, None, FORM)
    ids = reader(texts).read_all()["id"].to_pylist()
    assert (found.key, [found.named(n) for n in range(1, 5)]) == ("id", ids) and found.rows == 4
    assert found.texts([1, 3]) == ["河边的银行", "rain"]
    flat = reader(texts).read_all()["vector"].combine_chunks().flatten().to_numpy()
    assert np.array_equal(found.vectors, flat.reshape(4, -1))
    for verb in (("duplicates", "--over", 1), ("cluster", "--k", 2)):
        out = tmp_path / f"{verb[0]}.parquet"
        assert run(*verb, "-i", tmp_path / "a", "-o", out).code == 0
        assert set(pq.read_table(out)["id"].to_pylist()) <= set(ids)


@pytest.mark.parametrize("stored", ["v.parquet", "v/", "index"])
def test_lists_have_what_was_kept(run: Run, tmp_path: Path, stored: str):
    pytest.importorskip("lancedb")
    columns = {"id": ["a", "b", "c", "d"], "text": ["rain", "a bank", "a bank", "rain!"], "repeats": [1.5, None, 2, 3],
               "raw": [b"a", b"b", b"c", None]}  # fmt: skip
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    given = ("-m", "afterword-mini", "-i", tmp_path / "t.parquet", "--keep")
    if stored == "index":
        assert run("index", tmp_path / stored, *given, "repeats,raw", "--id", "id").code == 0
    else:
        assert run("embed", *given, "repeats,raw", "-o", f"{tmp_path}/{stored}").code == 0
    order = "abcd"
    if stored == "index":
        order = "".join(Index.open(tmp_path / stored).table.to_arrow()["id"].to_pylist())
    for ending in "jsonl", "csv", "parquet":
        kept, repeats = tmp_path / f"kept.{ending}", tmp_path / f"repeats.{ending}"
        ended = run("duplicates", "-i", tmp_path / stored, "--over", 0.999, "-o", kept, "--repeats", repeats)
        assert ended.code == 0, ended.err
    rows = [json.loads(line) for line in (tmp_path / "kept.jsonl").read_text().splitlines()]
    first = "b" if order.index("b") < order.index("c") else "c"
    wanted = {"a": (1.5, "YQ=="), first: (None, "Yg==") if first == "b" else (2, "Yw=="), "d": (3, None)}
    name = (lambda row: row["id"]) if stored == "index" else (lambda row: order[row["row"]])
    assert {name(row): (row["repeats"], row["raw"]) for row in rows} == wanted
    (other,) = pq.read_table(tmp_path / "repeats.parquet").to_pylist()
    assert (other["kept_repeats"], other["raw"]) == ((2, b"c") if first == "b" else (None, b"b"))
    with (tmp_path / "kept.csv").open(newline="") as file:
        assert {row["raw"] for row in csv.DictReader(file)} == {str(raw or "") for _, raw in wanted.values()}
    assert run("cluster", "-i", tmp_path / stored, "--k", 2, "-o", tmp_path / "c.jsonl").code == 0
    clustered = [json.loads(line) for line in (tmp_path / "c.jsonl").read_text().splitlines()]
    assert {row["raw"] for row in clustered} == {"YQ==", "Yg==", "Yw==", None}


def test_files_that_cannot_be_written(texts: Path):
    other = texts.with_name("there.csv")
    other.write_text("mine")
    check_output(other, texts, True, "-o")
    check_output(None, texts, False, "-o")
    for path, source, message in (
        (texts, None, r"the name ends in .jsonl, .csv, .parquet"),
        (other, other, "is the input"),
        (other, texts, "exists: give another name, or --overwrite"),
    ):
        with pytest.raises(typer.BadParameter, match=message):
            check_output(path, source, False, "-o")


def test_a_listing_reads_back(tmp_path: Path):
    columns = {"line": [1, 2], "text": ['猫, "坐"', "a\nb"], "cosine": [1.0, 0.1 + 0.2]}
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    for ending in (".jsonl", ".csv", ".parquet"):
        write_listing(tmp_path / f"x{ending}", columns)
    assert [json.loads(line) for line in (tmp_path / "x.jsonl").read_text("utf-8").splitlines()] == rows
    with (tmp_path / "x.csv").open(encoding="utf-8", newline="") as file:
        assert list(csv.DictReader(file)) == [{k: str(v) for k, v in row.items()} for row in rows]
    assert pq.read_table(tmp_path / "x.parquet").to_pylist() == rows
    write_listing(tmp_path / "none.parquet", {"line": (), "text": (), "cosine": ()})
    assert pq.read_table(tmp_path / "none.parquet").schema.names == ["line", "text", "cosine"]


def rounded(printed: str) -> str:
    """A printed answer whose numbers have four decimals."""
    return re.sub(r"\d\.\d{5,}", lambda number: f"{float(number[0]):.4f}", printed)


def test_the_folder_of_a_job_is_read_as_its_file(run: Run, tmp_path: Path):
    texts = tmp_path / "t.txt"
    texts.write_text("the bank\n\nrain\nthe bank\nmoney\nrain!\n")
    words = ["embed", "-m", "afterword-mini", "-i", texts]
    assert run(*words, "-o", f"{tmp_path}/job/", "--shard-rows", 2).code == 1
    assert run(*words, "-o", tmp_path / "t.parquet").code == 1
    for verb in (
        ("duplicates", "--over", 0.5, "--json", "-i"),
        ("cluster", "--k", 2, "--json", "-i"),
        ("similar", "-m", "afterword-mini", "--json", "-i"),
    ):
        file, folder = run(*verb, tmp_path / "t.parquet"), run(*verb, tmp_path / "job")
        assert folder.code == file.code and rounded(folder.out) == rounded(file.out) and file.out, verb
    words = ["similar", "-m", "afterword-mini", "--json", "a bank", "--against"]
    one, other = (json.loads(run(*words, path).out)["pairs"] for path in (tmp_path / "t.parquet", tmp_path / "job"))
    assert [(p["against_rows"], p["similarity"]["vector"]) for p in other] == [
        (p["against_rows"], pytest.approx(p["similarity"]["vector"], abs=1e-6)) for p in one
    ]  # products of as many rows as a part has
    (tmp_path / "job" / "shards" / "000001.parquet").unlink()
    ended = run("duplicates", "-i", tmp_path / "job")
    assert ended.code == 2 and "job is not complete: 4 of 6 rows done" in ended.err


def test_equal_texts_of_an_index_are_one_as_they_are_in_a_file(run: Run, tmp_path: Path):
    texts = ["a cat sat"] * 9 + ["rates rose", "rates fell", "a loan", "dogs bark", "rates rose"]
    (tmp_path / "t.csv").write_text("n,text\n" + "".join(f"r{i},{text}\n" for i, text in enumerate(texts)))
    given = ["-m", "afterword-mini", "-i", tmp_path / "t.csv"]
    assert run("index", tmp_path / "i", *given, "--id", "n").code == 0
    found = gather(tmp_path / "i", None, None, SETTINGS, None, None, FORM)
    wanted = gather(tmp_path / "t.csv", ModelChoice("afterword-mini"), None, SETTINGS, None, None, FORM)
    assert found.texts(range(5)) == wanted.texts(range(5)) and np.array_equal(found.vectors, wanted.vectors)
    assert found.ids is not None
    assert [[found.named(line) for line in lines] for lines in found.lines] == [
        [f"r{line - 2}" for line in lines] for lines in wanted.lines
    ]


def test_an_input_that_is_not_there_or_empty_is_named(run: Run, tmp_path: Path):
    (tmp_path / "e.txt").write_text("")
    for verb in ("duplicates", "cluster"):
        ended = run(verb, "-i", tmp_path / "none")
        assert ended.code == 2 and "none does not exist" in ended.err and "--model" not in ended.err
        ended = run(verb, "-m", "afterword-mini", "-i", tmp_path / "e.txt")
        assert ended.code == 2 and "--input: no text can be compared" in ended.err
