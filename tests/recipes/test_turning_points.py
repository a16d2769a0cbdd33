"""A turning point by gates (at 0 the causal model, at 1 BeLLM's)."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.scripts import script
from tests.tiny import tiny

from afterword import Encoder, bellm
from afterword.backbone.bidirectional import Sight

pytest.importorskip("peft", reason="the extra train is not installed")
from learn_turning_point import Gates

RECIPE = Path(__file__).parents[2] / "recipes" / "learn_turning_point.py"
TEXTS = ["The bank of the river.", "dog", "Seven more words stand here than before."]


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_gates_mix_the_causal_model_and_bellm(kind: str, tmp_path: Path):
    folder = tiny(kind, tmp_path)
    encoder = Encoder.load(folder, replace(bellm(), sight=Sight()))
    causal = encoder.encode(TEXTS)
    gates = Gates(encoder.backbone)
    assert abs(encoder.encode(TEXTS) - causal).max() <= 1e-6 * abs(causal).max()
    for open_ones in ([2], [1, 2], [0, 1, 2]):
        with torch.no_grad():
            gates.values.copy_(torch.tensor([float(i in open_ones) for i in range(3)]))
        wanted = Encoder.load(folder, bellm(last=len(open_ones))).encode(TEXTS)
        assert abs(encoder.encode(TEXTS) - wanted).max() <= 1e-5 * abs(wanted).max()
        assert abs(wanted - causal).max() > 1e-3 * abs(causal).max()


@pytest.mark.slow
def test_the_recipe_runs_and_prints_where_they_end(tmp_path: Path):
    folder, rows = tiny("llama", tmp_path / "model"), tmp_path / "rows.jsonl"
    pairs = [(f"the {a} is {b} today", f"{b} {a}") for a in ("cat", "dog", "sea", "sun") for b in ("red", "old", "far")]
    rows.write_text("".join(json.dumps({"anchor": a, "positive": b}) + "\n" for a, b in pairs))
    dev = tmp_path / "dev.csv"
    dev.write_text("sentence1,sentence2,score\nthe cat,a cat,1\nthe cat,a dog,0\nthe sea,a tea,0.5\n")
    words = ["--model", folder, "--data", rows, "--dev", dev, "--steps", 8, "--batch-size", 6, "--template", ""]
    done = script(RECIPE, *words, "--json", tmp_path / "gates.json")
    assert done.code == 0, done.err
    found = json.loads((tmp_path / "gates.json").read_text())
    assert len(found["gates"]) == 3 and len(found["path"]) == len(found["losses"]) == 8
    assert found["path"][-1] == found["gates"] and any(g > 0 for g in found["gates"])
    assert np.isfinite(found["losses"]).all() and set(found["dev"]) == {"before", "after", "after, gates at 0"}
