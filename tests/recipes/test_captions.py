"""Captions: the table of retrieved captions."""

import json
import sys
from pathlib import Path

import captions_side_by_side
import pytest

from afterword import Encoder
from afterword.encode.similarity import similarity

IMAGES = {
    "a.jpg": ["A dog runs on the grass.", "The dog runs over green grass."],
    "b.jpg": ["Two men play football.", "Two young men are playing football in a field."],
    "c.jpg": ["A woman cooks.", "A lady is cooking soup."],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = [json.dumps({"image": image, "captions": captions}) for image, captions in IMAGES.items()]
    (tmp_path / "toy.jsonl").write_text("\n".join(rows))
    return tmp_path


def run(monkeypatch: pytest.MonkeyPatch, folder: Path, *args: str) -> int:
    given = ["captions_side_by_side", "--data", str(folder), "--file", "toy", "--model", "afterword-mini", *args]
    monkeypatch.setattr(sys, "argv", given)
    return captions_side_by_side.main()


def test_a_table(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    methods = ["classical", "reba:copies=2"]
    options = [o for m in methods for o in ("--method", m)]
    assert run(monkeypatch, folder, *options, "--query", "TWO MEN", "--top", "5") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["Query: Two men play football.", ""]
    cells = [[c.strip() for c in line.strip("|").split("|")] for line in lines[2:]]
    assert cells[0] == ["", "afterword-mini classical", "afterword-mini reba:copies=2"]
    captions = [c for found in IMAGES.values() for c in found]
    for column, method in enumerate(methods, 1):
        vectors = Encoder.load("afterword-mini", method).encode(captions)
        order = [i for i in similarity(vectors[2:3], vectors, "cosine")[0].argsort()[::-1] if i != 2]
        marked = [f"**{captions[i]}**" if i == 3 else captions[i] for i in order]
        assert [row[column] for row in cells[2:]] == marked
