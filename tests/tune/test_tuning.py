"""Tuning as a whole: noise is not believed, the default is what the encoder does, bad pairs are named."""

import numpy as np
import pytest
from tests.tune.made_up import load, made_up

from afterword import Encoder, classical, reba
from afterword.errors import InputError
from afterword.post import Normalise
from afterword.tasks.pairs import ScoredPairs
from afterword.tasks.scores import cosines
from afterword.tune import Grid, tune

pytestmark = pytest.mark.filterwarnings("ignore:ditto on")


@pytest.mark.parametrize("cases", [4, pytest.param(8, marks=pytest.mark.soak)])
def test_noise_is_not_believed(tmp_path, cases: int):
    encoder = load("bert", tmp_path)
    claims = [tune(encoder, made_up(60, seed), seed=seed).choice.improved for seed in range(cases)]
    assert sum(claims) <= 1


def test_the_default_is_what_the_encoder_does_already(tmp_path):
    encoder, pairs = load("gpt2", tmp_path, reba(2)), made_up()
    tuned = tune(encoder, pairs, Grid(heads="none", posts=()))
    assert str(tuned.recipes[tuned.choice.default]) == "reba" and tuned.encoder_of(tuned.choice.default) is encoder
    own = Encoder(encoder.backbone, reba(3, normalise="token"), (Normalise(),))
    tuned = tune(own, pairs, Grid(heads="none", posts=()))
    assert tuned.recipes[tuned.choice.default].post == "its own"
    vectors = own.encode([*pairs.left, *pairs.right])
    assert tuned.cosines[tuned.choice.default] == pytest.approx(cosines(vectors[:44], vectors[44:]), abs=1e-9)


def test_a_prompt_stands_in_front_of_every_recipe(tmp_path):
    loaded, pairs = load("bert", tmp_path), made_up()
    encoder = Encoder(loaded.backbone, classical(), prompts={"q": "query: "}, default_prompt_name="q")
    tuned = tune(encoder, pairs, Grid(heads="none"))
    assert tuned.recipes[tuned.choice.default].method == classical()
    for i in (0, 5, 20):
        vectors = tuned.encoder_of(i).encode([*pairs.left, *pairs.right])
        assert cosines(vectors[:44], vectors[44:]) == pytest.approx(tuned.cosines[i], abs=1e-6)


def test_bad_pairs(tmp_path):
    encoder, pairs = load("bert", tmp_path), made_up()
    with pytest.raises(InputError, match="39 pairs are too few"):
        tune(encoder, ScoredPairs(pairs.left[:39], pairs.right[:39], pairs.gold[:39], ()))
    with pytest.raises(InputError, match="all 44 pairs have the score 1"):
        tune(encoder, ScoredPairs(pairs.left, pairs.right, np.ones(44), ()))


def test_one_text_everywhere_is_named(tmp_path):
    encoder = load("bert", tmp_path)
    same = ScoredPairs(("a cat",) * 44, ("a cat",) * 44, np.arange(44.0), ())
    with pytest.raises(InputError, match="every recipe"):
        tune(encoder, same)


def test_blank_texts_are_read_as_a_full_stop(tmp_path):
    encoder, pairs = load("bert", tmp_path), made_up()
    blank, stop = (ScoredPairs((t, *pairs.left[1:]), pairs.right, pairs.gold, ()) for t in (" ", "."))
    assert np.array_equal(tune(encoder, blank).cosines, tune(encoder, stop).cosines, equal_nan=True)
