"""What is written: the encoder that won, fitted, and everything that was tried."""

import json
from dataclasses import replace

import numpy as np
import pytest
from tests.tune.made_up import load, made_up

from afterword import Encoder, classical
from afterword.tasks.pairs import ScoredPairs
from afterword.tasks.scores import cosines
from afterword.tune import score, tune
from afterword.tune.report import as_json, save


def test_a_real_gain_is_found_and_saved(tmp_path):
    """Scores made of the cosines of one recipe: it wins, and the folder gives what was measured."""
    encoder, pairs = load("bert", tmp_path / "model"), made_up(200)
    target = Encoder(encoder.backbone, classical("last", states="layer:1"))
    vectors = target.encode([*pairs.left, *pairs.right])
    pairs = ScoredPairs(pairs.left, pairs.right, cosines(vectors[:200], vectors[200:]), pairs.subsets)
    tuned = tune(encoder, pairs)
    assert tuned.choice.improved and str(tuned.recipes[tuned.choice.chosen]) == "classical:pool=last,states=layer:1"
    assert score(tuned.chosen, pairs) == pytest.approx(1, abs=1e-9)
    save(tuned, tmp_path / "out", [{"name": "x", "pairs": 2, "chosen": 1.0, "default": 0.5}])
    again = Encoder.load(tmp_path / "out", dtype="float64")
    assert again.method == target.method and score(again, pairs) == pytest.approx(1, abs=1e-6)
    written = json.loads((tmp_path / "out" / "tune.json").read_text())
    assert written["tried"] == len(written["recipes"]) == len(tuned.recipes)
    assert written["chosen"]["method"] == "classical:pool=last,states=layer:1" and written["improved"]
    assert sorted(written["split"]["rank"] + written["split"]["confirm"]) == list(range(200))


def test_a_winner_with_a_fitted_step_is_saved_with_it(tmp_path):
    encoder, pairs = load("bert", tmp_path / "model"), made_up(100)
    tuned = tune(encoder, pairs)
    for post in ("centre", "whiten", "remove_top", "tfidf"):
        at = next(i for i, r in enumerate(tuned.recipes) if r.post.startswith(post) or r.spec == post)
        tuned.encoder_of(at).save(tmp_path / post)
        vectors = Encoder.load(tmp_path / post, dtype="float64").encode([*pairs.left, *pairs.right])
        assert cosines(vectors[:100], vectors[100:]) == pytest.approx(tuned.cosines[at], abs=2e-5)


def test_a_recipe_counts_as_undefined_on_either_half(tmp_path):
    tuned = tune(load("bert", tmp_path / "model"), made_up(60))
    before = as_json(tuned)["undefined"]
    at = [i for i, score in enumerate(tuned.choice.rank + tuned.choice.confirm) if np.isfinite(score)][-2:]
    choice = replace(tuned.choice, rank=tuned.choice.rank.copy(), confirm=tuned.choice.confirm.copy())
    choice.rank[at[0]], choice.confirm[at] = np.nan, np.nan
    assert as_json(replace(tuned, choice=choice))["undefined"] == before + 2
