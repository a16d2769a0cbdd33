"""What the packaged models learn from, and BeLLM's recipe on a toy scale."""

import gzip
import json
import lzma
from pathlib import Path
from typing import Any

import pytest
from tests.scripts import script

from afterword import Encoder, bellm

pytest.importorskip("peft", reason="the extra train is not installed")
from bellm_mini import triplets
from mini.sentences import sample

RECIPES = Path(__file__).parents[2] / "recipes"
PROSE = "The old house stood on a hill. It rained all day in the north.\nTwo birds sat on the wall and sang. Yes."


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder in small: 28 free triplets, of which two hold an evaluation text, and two that are not free."""
    root = tmp_path_factory.mktemp("shared")
    names = ("cat", "dog", "horse", "bird", "cow", "fox", "goat", "hen", "mule", "pig", "ram", "wolf", "bear", "duck")
    places = ("house", "wall")
    rows = [
        {"anchor": f"A {n} is at the {p}.", "positive": f"There is a {n} by a {p}.", "negative": f"No {n} saw the {p}."}
        for n in names
        for p in places
    ]
    unfree = [{"anchor": f"Not {i}.", "positive": f"Free {i}.", "negative": f"At all {i}."} for i in range(2)]
    write(root / "nli" / "triplets.jsonl.gz", rows + unfree)
    counts = {"snli-train": 20, "cad": 8, "other": 2}
    (root / "nli" / "triplets_manifest.json").write_text(json.dumps({"counts": counts}))
    pairs = [("a CAT is at the house", "A plane took off.", 0.5), ("no dog saw the wall .", "It rained!", 4.0)]
    write(root / "en" / "sts" / "stsb.dev.jsonl.gz",
          [{"sentence1": a, "sentence2": b, "score": s} for a, b, s in pairs])  # fmt: skip
    write(root / "en" / "transfer" / "trec.train.jsonl.gz", [{"text": "A dog is at the house."}])
    write(root / "nli" / "nli_pairs.jsonl.gz", [
        {"source": "snli-train/x", "premise": "A man sits.", "hypothesis": "It rained!"},
        {"source": "elsewhere", "premise": "Not free.", "hypothesis": "Nor this."},
    ])  # fmt: skip
    (root / "corpus").mkdir()
    for name in ("enwiki_more", "novels"):
        with lzma.open(root / "corpus" / f"{name}.txt.xz", "wt", encoding="utf-8") as file:
            file.write(PROSE)
    return root


def test_triplets_with_an_evaluation_text_are_left_out(folder: Path, tmp_path: Path):
    dropped = triplets(folder, tmp_path / "rows.jsonl")
    kept = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert dropped == {"en/sts/stsb.dev": 2} and len(kept) == 26
    texts = {text for row in kept for text in row.values()}
    assert "A dog is at the house." in texts  # nothing is measured on a training split
    assert not {"A cat is at the house.", "No dog saw the wall.", "Not 0."} & texts


def test_sentences_are_free_of_a_length_and_of_no_evaluation_set(folder: Path):
    found = sample(folder, prose=8)
    assert sorted(found.sentences) == [
        "A man sits.", "It rained all day in the north.", "The old house stood on a hill.",
        "Two birds sat on the wall and sang.",
    ]  # fmt: skip
    assert found.dropped == {"en/sts/stsb.dev": 1}  # "It rained!"


@pytest.mark.slow
def test_the_recipe_ends_in_a_folder_of_half_the_size(folder: Path, tmp_path: Path):
    small = ("--batch-size", 8, "--epochs", 1, "--rank", 4, "--precision", "float32")
    done = script(RECIPES / "bellm_mini.py", "--shared", folder, "--out", tmp_path, *small)
    assert done.code == 0, done.err
    assert "2 triplets hold an evaluation text and were left out: {'en/sts/stsb.dev': 2}" in done.out
    whole, half = (tmp_path / name / "model.safetensors" for name in ("encoder", "half"))
    assert half.stat().st_size < 0.51 * whole.stat().st_size
    encoder = Encoder.load(tmp_path / "half")
    assert encoder.method == bellm()
    base = Encoder.load("afterword-mini", bellm()).encode("A cat.")
    moved = abs(encoder.encode("A cat.") - base).max() / abs(base).max()
    assert 0.001 < moved < 1
