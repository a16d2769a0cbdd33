"""Ensembles of two of the best recipes, and the named ones, are what the encoder of the recipe gives."""

import numpy as np
import pytest
import torch
from tests.tune.made_up import load, made_up

from afterword import classical, echo
from afterword.methods import Ensemble
from afterword.tasks.scores import cosines
from afterword.tune import Grid, tune
from afterword.tune.ensembles import BEST, best_of, of_two


def leaders(*widths: int) -> list:
    random = torch.Generator().manual_seed(0)
    return [
        (classical(), f"m{i}", torch.randn(2, 44, width, generator=random, dtype=torch.float64))
        for i, width in enumerate(widths)
    ]


def test_only_vectors_of_one_width_are_joined() -> None:
    found = of_two(leaders(8, 8, 4), np.arange(44))
    assert [recipe.spec for recipe in found.recipes] == ['ensemble:methods="m0;m1",normalise=true'] * 2
    assert [recipe.post for recipe in found.recipes] == ["none", "centre"] and found.cosines.shape == (2, 44)
    nothing = of_two(leaders(8), np.arange(44))
    assert nothing.recipes == [] and nothing.fits == []


def test_the_best_on_the_pairs_that_rank_are_kept_once() -> None:
    given, gold = leaders(*[8] * (BEST + 2)), np.random.default_rng(0).normal(size=44)
    found = best_of([*given, *given], gold, np.arange(20))
    assert len({spec for _, spec, _ in found}) == len(found) == BEST
    first = next(v for _, spec, v in given if spec == found[0][1])
    assert cosines(*first[:, :20].numpy()) == pytest.approx(cosines(*found[0][2][:, :20].numpy()))


@pytest.mark.filterwarnings("ignore:ditto on")
def test_they_are_tried_and_give_what_their_encoder_gives(tmp_path) -> None:
    encoder, pairs = load("gpt2", tmp_path, echo()), made_up()
    tuned = tune(encoder, pairs, Grid(posts=(), heads="none"))
    tried = [i for i, r in enumerate(tuned.recipes) if isinstance(r.method, Ensemble)]
    named = [tuned.recipes[i].spec for i in tried]
    assert named.count("ensemble:ck") == 2 and len(tried) == 2 * (BEST * (BEST - 1) // 2 + 1)
    for i in (tried[0], tried[1], tried[-2], tried[-1]):
        vectors = tuned.encoder_of(i).encode([*pairs.left, *pairs.right]).reshape(2, len(pairs.gold), -1)
        assert cosines(*vectors) == pytest.approx(tuned.cosines[i], abs=2e-5)
    without = tune(encoder, pairs, Grid(posts=(), heads="none", published=False, ensembles=False))
    assert not any(isinstance(r.method, Ensemble) for r in without.recipes)
