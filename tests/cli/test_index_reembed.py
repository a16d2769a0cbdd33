"""An index of another index's texts, by another model: everything but the vectors stays."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.cli.conftest import Run

from afterword import Encoder
from afterword.errors import TextsUnknown
from afterword.index.index import Index
from afterword.jobs.embedder import MethodsEmbedder

ROWS = [
    {"n": "O'Brien", "text": "The bank raised its rates. It fell.", "channel": None},
    {"n": "😀", "text": "银行提高了利率。"}, {"n": 'say "no"', "text": "first\nsecond line", "channel": "mail"},
    {"n": "x" * 10_000, "text": "river", "channel": "chat"},
]  # fmt: skip
KEEP = ["--keep", "channel"]


def rows_of(folder: Path, vectors: bool = False) -> list[dict]:
    table: pa.Table = Index.open(folder).table.to_arrow().sort_by("id")
    return table.drop_columns(["hash"] if vectors else ["hash", "vector"]).to_pylist()


class Old:
    """An index by gpt2, and the command that embeds its texts anew by bert."""

    def __init__(self, run: Run, gpt2: Path, bert: Path, folder: Path, *more: object) -> None:
        self.run, self.folder, self.input, self.bert = run, folder / "old", folder / "t.jsonl", bert
        self.input.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
        self.more = more
        given = ("-m", gpt2, "--method", "classical", "-i", self.input, *more)
        assert run("index", self.folder, *given).code == 0
        self.new = folder / "new"
        self.words = ("index", self.new, "-m", bert, "--method", "classical", "--from-index", self.folder)


@pytest.mark.parametrize("more", [["--id", "n", *KEEP], KEEP, ["--chunk", "sentences"]])
def test_all_but_the_vectors_stays(run: Run, gpt2: Path, bert: Path, tmp_path: Path, more: list[str]):
    old = Old(run, gpt2, bert, tmp_path, *more)
    before = rows_of(old.folder, vectors=True)
    files = {path: path.read_bytes() for path in old.folder.rglob("*") if path.is_file()}
    ended = run(*old.words)
    count = len(before)
    assert ended.code == 0 and f"{count} embedded; {old.new} has {count} rows\n" in ended.err
    assert rows_of(old.new) == rows_of(old.folder)
    new = rows_of(old.new, vectors=True)
    with pytest.warns(TextsUnknown):
        expected = Encoder.load(bert, "classical").encode([row["text"] for row in new])
    assert np.array_equal(np.array([row["vector"] for row in new], np.float32), expected)
    assert files == {path: path.read_bytes() for path in old.folder.rglob("*") if path.is_file()}
    assert f"0 embedded, {count} known" in run(*old.words).last
    # The texts themselves are known by the same ids, also where these are hashes.
    update = run("index", old.new, "-m", bert, "--method", "classical", "-i", old.input, *more, "--prune")
    assert update.last == f"0 embedded, {count} known; {old.new} has {count} rows"


def test_an_interrupted_run_goes_on(run: Run, gpt2: Path, bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    old = Old(run, gpt2, bert, tmp_path, *KEEP)
    texts: list[str] = []
    stop, real = 3, MethodsEmbedder.__call__

    def interrupted(self, given, *rest):
        texts.extend(given)
        if len(texts) == stop:
            raise KeyboardInterrupt
        return real(self, given, *rest)

    monkeypatch.setattr(MethodsEmbedder, "__call__", interrupted)
    assert run(*old.words, "--window", "1").code == 130
    assert "holds no rows yet: its first build goes on" in run("search", old.new, "x").err
    stop = 0
    ended = run(*old.words, "--window", "1")
    assert ended.code == 0 and "2 rows done before" in ended.err
    assert sorted(texts[:2] + texts[3:]) == sorted(row["text"] for row in ROWS)
    assert rows_of(old.new) == rows_of(old.folder)


def test_an_index_of_other_ids_is_refused(run: Run, gpt2: Path, bert: Path, tmp_path: Path):
    old = Old(run, gpt2, bert, tmp_path)
    usual = ("-m", bert, "--method", "classical")
    assert run("index", old.new, *usual, "-i", old.input).code == 0
    ended = run(*old.words)
    assert ended.code == 2 and "has ids that are no ids of" in ended.last and len(rows_of(old.new)) == 4


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--chunk", "8"], "holds no whole texts: leave --chunk out"), (["-i", "a.txt"], "leave --input out"),
        (["--id", "n"], "leave --id out"), (["--keep", "n"], "leave --keep out"),
    ],
)  # fmt: skip
def test_other_rows_are_refused(run: Run, tmp_path: Path, words: list[str], told: str):
    ended = run("index", tmp_path / "new", "-m", "x", "--from-index", tmp_path, *words)
    assert ended.code == 2 and told in ended.err and not (tmp_path / "new").exists()


def test_what_is_no_other_index_is_one_line(run: Run, gpt2: Path, bert: Path, tmp_path: Path):
    old = Old(run, gpt2, bert, tmp_path, "--chunk", "8", "--late")
    for folder, told in [
        (old.new, f"{old.new} is the new index too"), (tmp_path / "none", "does not exist"), (tmp_path, "is no index"),
        (old.folder, "has --late chunks, whose vectors need the whole texts"),
    ]:  # fmt: skip
        ended = run(*old.words[:-1], folder)
        assert ended.code == 2 and told in ended.err and len(ended.err.splitlines()) == 1, ended.err
        assert not old.new.exists()
