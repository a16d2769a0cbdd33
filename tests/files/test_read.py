"""Which reader a file gets."""

import io
from pathlib import Path

import pytest

from afterword.errors import DataError, MissingDataset
from afterword.files.lines import JsonLinesReader, LinesReader
from afterword.files.read import open_texts
from afterword.files.tables import CsvReader


def test_a_file_is_read_by_its_ending(tmp_path: Path):
    for name, text, kind in (
        ("a.txt", "a\n", LinesReader),
        ("a.JSONL", '"a"\n', JsonLinesReader),
        ("a.csv", "text\na\n", CsvReader),
    ):
        (tmp_path / name).write_text(text)
        reader = open_texts(tmp_path / name, io.BytesIO())
        assert type(reader) is kind and reader.total == len(text)
        assert [r.fields["text"] for r in reader] == ["a"]


def test_stdin_has_no_length():
    reader = open_texts(None, io.BytesIO(b"a\nb\n"))
    assert reader.total is None and [r.fields["text"] for r in reader] == ["a", "b"]
    assert [r.fields["x"] for r in open_texts(None, io.BytesIO(b'{"x": "a"}'), kind="jsonl", field="x")] == ["a"]


def test_what_cannot_be_opened(tmp_path: Path):
    (tmp_path / "a.doc").write_text("x")
    (tmp_path / "a.txt").mkdir()
    (tmp_path / "a.csv").write_text("text\na\n")
    with pytest.raises(MissingDataset, match=r"none\.csv is not there"):
        open_texts(tmp_path / "none.csv", io.BytesIO())
    for path, options, told in (
        (tmp_path / "a.doc", {}, "no known format"),
        (tmp_path / "a.txt", {}, "is a folder"),
        (tmp_path / "a.csv", {"beside": ["about"]}, "no column 'about'"),
        (None, {"kind": "parquet"}, "standard input"),
        (None, {"field": "x"}, "plain text"),
    ):
        with pytest.raises(DataError, match=told):
            open_texts(path, io.BytesIO(), **options)
