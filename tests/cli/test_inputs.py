"""What is read, and which options say how."""

import gzip
from pathlib import Path

import pytest
from tests.cli.conftest import Run

from afterword.cli.option_groups import Form
from afterword.files.lines import JsonLinesReader, ListedReader
from afterword.jobs.rows import items_of


def test_a_text_may_look_like_a_file_that_is_not_there():
    texts = ["none.txt", "a" * 5000 + ".txt", "\0.txt"]
    assert [record.fields["text"] for record in Form().open(None, texts)] == texts


def test_a_row_keeps_its_own_text_and_values(tmp_path: Path):
    rows = (
        b'{"text": "  ", "id": 1}\n{"text": 5, "id": "\\ud800"}\n{"text": "a\\u0000", "id": {"a": ["\\ud800"]}}\n[]\n'
    )
    (tmp_path / "in.jsonl").write_bytes(rows)
    with (tmp_path / "in.jsonl").open("rb") as stream:
        found = list(items_of(JsonLinesReader(stream), keep=["id"]))
    assert [(item.text, item.kept) for item in found] == [
        ("  ", {"id": 1}), (None, {"id": None}), ("a\0", {"id": None}), (None, {})
    ]  # fmt: skip
    assert [item.problem for item in found] == [
        "is blank", "is not a string but a number", "holds a NUL character at position 1: remove it",
        "is a JSON array, not an object or a string",
    ]  # fmt: skip
    assert [item.problem for item in items_of(ListedReader(["a"], {"id": "\ud800"}), keep=["id"])] == [
        "'id' holds a lone surrogate"
    ]


def test_how_a_file_is_written_can_be_said(run: Run, gpt2: Path, tmp_path: Path):
    (tmp_path / "a.csv").write_bytes("caf\xe9^1\nth\xe9^2\n".encode("cp1252"))
    said = ("--delimiter", "^", "--encoding", "cp1252", "--no-header", "--column", 1)
    ended = run("embed", "-m", gpt2, "--method", "classical", "-i", tmp_path / "a.csv", *said)
    assert (ended.code, ended.err) == (0, "") and [row["text"] for row in ended.rows] == ["café", "thé"]
    (tmp_path / "b.tsv.gz").write_bytes(gzip.compress("text\tword\na café\tcafé\n".encode()))
    ended = run("words", "-m", gpt2, "--method", "classical", "-i", tmp_path / "b.tsv.gz")
    assert (ended.code, ended.err) == (0, "") and ended.rows[0]["word"] == "café"
    similar = run("similar", "-m", gpt2, "--method", "classical", "-i", tmp_path / "a.csv", *said)
    assert similar.code == 0 and "thé" in similar.out
    assert Form(delimiter="tab").form().delimiter == Form(delimiter="\\t").form().delimiter == "\t"


@pytest.mark.parametrize(
    ("name", "content", "options", "value"),
    [
        ("a.csv", b"text\na\n", ["--delimiter", ";;"], "';;'"),
        ("a.csv", b"text\na\n", ["--encoding", "cp12522"], "'cp12522'"),
        ("a.csv", b"id,body\n1,b\n", [], "'text'"),
        ("a.csv", b"text\na\xe9\n", [], "0xe9"),
        ("a.csv.gz", b"text\na\n", [], "a.csv.gz"),
        ("a.csv", None, [], "a.csv is a folder"),
        ("a.txt", b" \n\n", [], "2 of 2 rejected"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_line(
    run: Run, gpt2: Path, tmp_path: Path, name: str, content: bytes | None, options: list[str], value: str
):
    path, out = tmp_path / name, tmp_path / "out.npy"
    path.mkdir() if content is None else path.write_bytes(content)
    ended = run("embed", "-m", gpt2, "--method", "classical", "-i", path, "-o", out, *options)
    assert ended.code == 2 and value in ended.last and len(ended.err.splitlines()) == 1
    assert not out.exists()


def test_if_no_row_can_be_embedded_an_older_output_stays(run: Run, gpt2: Path, tmp_path: Path):
    (tmp_path / "a.txt").write_text("\n")
    (tmp_path / "out.npy").write_bytes(b"older")
    run("embed", "-m", gpt2, "--method", "classical", "-i", tmp_path / "a.txt", "-o", tmp_path / "out.npy")
    assert (tmp_path / "out.npy").read_bytes() == b"older"


def test_an_empty_file_is_a_warning(run: Run, gpt2: Path, tmp_path: Path):
    for name, content in (("a.csv", b""), ("b.csv", b"text\n"), ("a.txt", b""), ("a.jsonl", b"")):
        (tmp_path / name).write_bytes(content)
        ended = run("embed", "-m", gpt2, "--method", "classical", "-i", tmp_path / name)
        assert (ended.code, ended.err) == (0, "warning: the input is empty\n")


def test_words_says_which_columns_it_needs(run: Run, gpt2: Path, tmp_path: Path):
    for header in ("id,text", "text,words", "word,txt"):
        (tmp_path / "w.csv").write_text(f"{header}\na,b\n")
        ended = run("words", "-m", gpt2, "-i", tmp_path / "w.csv")
        assert ended.code == 2 and "has no column" in ended.last
