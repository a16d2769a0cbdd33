"""The pair of trainings that captions are asked of, on a toy scale, and their table."""

import json
import sys
from argparse import Namespace
from pathlib import Path

import pytest

pytest.importorskip("sentence_transformers", reason="the extra train is not installed")
pytest.importorskip("peft", reason="the extra train is not installed")
RECIPES = Path(__file__).parents[2] / "recipes"
sys.path.insert(0, str(RECIPES))

import captions_bellm  # noqa: E402


def test_a_pair_differs_in_the_last_layer_alone_and_is_not_run_again(tmp_path: Path):
    things = ("cat", "dog", "horse", "bird", "cow", "fox")
    captions = tmp_path / "en" / "flickr30k" / "captions.test.jsonl"
    captions.parent.mkdir(parents=True)
    captions.write_text(
        "".join(json.dumps({"image": t, "captions": [f"A {t} is {w}." for w in ("in", "out")]}) + "\n" for t in things)
    )
    rows = tmp_path / "rows.jsonl"
    rows.write_text(
        "".join(
            json.dumps({"anchor": f"{t}s", "positive": f"some {t}s", "negative": f"no {t}s"}) + "\n" for t in things
        )
    )
    args = Namespace(data=tmp_path, model="afterword-mini", out=tmp_path, steps=2, batch_size=4, precision="float32")
    found = [captions_bellm.run(args, rows, last, 0) for last in (0, 1)]
    assert [r["last"] for r in found] == [0, 1] and all(0 <= r["strict_accuracy"] <= 100 for r in found)
    rows.unlink()  # what is finished needs no rows
    assert captions_bellm.run(args, rows, 1, 0) == found[1]
    assert not [path for path in tmp_path.iterdir() if path.is_dir() and path.name.startswith("last")]


def test_the_table_has_means_and_deviations():
    found = [
        {"last": last, "seed": seed, "strict_accuracy": 2.0 * last + seed, "recall_at_5": 10.0 + seed}
        for seed in (0, 1)
        for last in (0, 1)
    ]
    assert captions_bellm.table(found).splitlines()[2:] == [
        "| no bidirectional layer |     0.50 ± 0.71 | 10.50 ± 0.71 |",
        "| last 1                 |     2.50 ± 0.71 | 10.50 ± 0.71 |",
    ]
