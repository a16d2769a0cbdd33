import os
from pathlib import Path

from tests.cli.conftest import Run

from afterword.cli.inputs import open_reader


def test_a_text_may_look_like_a_file_that_is_not_there():
    texts = ["none.txt", "a" * 5000 + ".txt", "\0.txt"]
    assert [record.fields["text"] for record in open_reader(texts, None, None, None)] == texts


def test_arguments_that_are_not_unicode(run: Run, gpt2: Path):
    ended = run("embed", "-m", gpt2, "--method", "classical", os.fsdecode(b"caf\xe9"), "café")
    assert ended.code == 1 and [row["text"] for row in ended.rows] == [None, "café"]
    assert "rejected: line 1: holds a lone surrogate" in ended.err
