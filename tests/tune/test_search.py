"""Every recipe of the one pass is what `Encoder.encode` gives with that method and that step, one by one."""

import numpy as np
import pytest
import torch
from tests.tiny import tiny
from tests.tune.made_up import SPECS, load, made_up, slow_vectors

import afterword.tune.search as search
from afterword import Encoder, classical, ditto
from afterword.encode.limits import Limits
from afterword.methods import Ensemble, tfidf
from afterword.post import EmbedFilter, Whiten, parse_post
from afterword.tasks.scores import cosines, quantize, spearman
from afterword.tune import Grid, tune

pytestmark = pytest.mark.filterwarnings("ignore:ditto on")


@pytest.fixture(scope="module", params=list(SPECS))
def found(request, tmp_path_factory):
    """A model, pairs, and what tuning gives; most pairs are past the beginning, and nothing is held."""
    encoder, pairs = load(request.param, tmp_path_factory.mktemp(request.param)), made_up()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "BEGINNING", 9)
        patch.setattr(search, "HELD", 0 if request.param == "gpt2" else search.HELD)
        limits = Limits(encoder.max_length, batch_tokens=300)
        return encoder, pairs, tune(encoder, pairs, SPECS[request.param][1], seed=2, limits=limits)


def test_every_recipe_is_what_encode_gives(found):
    encoder, pairs, tuned = found
    ranking = tuned.split[0]
    assert len(tuned.recipes) > 130
    checked = {"none": 0, "centre": 0, "fitted": 0}
    for i, vectors in slow_vectors(encoder, pairs, tuned).items():
        post = tuned.recipes[i].post
        if post == "none":
            expected = cosines(*vectors)
        elif post == "centre":
            first = ranking if isinstance(tuned.recipes[i].method, Ensemble) else ranking[:9]
            centred = vectors - vectors[:, first].mean((0, 1))
            if np.linalg.norm(centred, axis=-1).min() < 1e-6 * np.linalg.norm(vectors, axis=-1).max():
                assert np.isnan(tuned.choice.rank[i])
                continue
            expected = cosines(*centred)
        else:
            (step,) = parse_post(post)
            fitted_to = torch.from_numpy(vectors[:, ranking].reshape(-1, vectors.shape[-1]))
            dense = step.of(encoder.backbone) if isinstance(step, EmbedFilter) else step.fit(fitted_to)
            expected = cosines(*dense(torch.from_numpy(vectors).flatten(0, 1)).chunk(2))
        checked[post if post in checked else "fitted"] += 1
        # a fitted step is kept in float32: behind it the last bits of float64 vectors may tip one of its numbers
        assert tuned.cosines[i] == pytest.approx(expected, abs=1e-6 if post in ("none", "centre") else 1e-4), (
            tuned.recipes[i]
        )
        if np.ptp(expected) > 1e-9 and post in ("none", "centre"):
            expected = quantize(expected)  # of equal cosines, rounding decides which is larger
            for half, scores in zip(tuned.split, (tuned.choice.rank, tuned.choice.confirm), strict=True):
                assert scores[i] == pytest.approx(spearman(expected[half], pairs.gold[half]), abs=1e-6)
    assert checked["none"] > 60 and checked["centre"] > 60 and checked["fitted"] >= 8


def test_the_encoder_of_a_recipe_gives_its_cosines(found):
    _, pairs, tuned = found
    posts = {}
    for i, recipe in enumerate(tuned.recipes):
        posts.setdefault(recipe.post, i)
    for i in posts.values():
        if not np.isnan(tuned.choice.rank[i]):
            vectors = tuned.encoder_of(i).encode([*pairs.left, *pairs.right]).reshape(2, len(pairs.gold), -1)
            assert cosines(*vectors) == pytest.approx(tuned.cosines[i], abs=2e-5)


def test_frequencies_are_those_of_the_half_that_ranks(found):
    encoder, pairs, tuned = found
    texts = [side[i] for side in (pairs.left, pairs.right) for i in tuned.split[0]]
    expected = Encoder(encoder.backbone, tfidf()).fit(texts).encode([*pairs.left, *pairs.right])
    at = next(i for i, r in enumerate(tuned.recipes) if r.spec == "tfidf" and r.post == "none")
    assert cosines(expected[:44], expected[44:]) == pytest.approx(tuned.cosines[at], abs=1e-6)


def test_heads_are_dittos(found):
    encoder, pairs, tuned = found
    for head in ((0, 0), (1, 1)):
        method = ditto(head)
        at = next(i for i, r in enumerate(tuned.recipes) if r.is_ditto and r.method == method)
        vectors = Encoder(encoder.backbone, method).encode([*pairs.left, *pairs.right])
        assert cosines(vectors[:44], vectors[44:]) == pytest.approx(tuned.cosines[at], abs=1e-6)


def test_texts_that_two_copies_would_cut_are_whole_in_one(tmp_path):
    encoder, pairs = load("gpt2", tmp_path, max_length=24), made_up()
    with pytest.warns(UserWarning, match="truncated"):
        tuned = tune(encoder, pairs, Grid(heads="none", posts=()), limits=Limits(24))
    with pytest.warns(UserWarning, match="truncated"):
        slow = slow_vectors(encoder, pairs, tuned)
    for i in range(0, len(tuned.recipes), 2):
        assert tuned.cosines[i] == pytest.approx(cosines(*slow[i]), abs=1e-6)


def test_batches_and_halving_change_nothing(tmp_path, monkeypatch):
    encoder, pairs = load("bert", tmp_path), made_up()
    grid = Grid(published=False)
    whole, heard = tune(encoder, pairs, grid), []
    real = search.Search._read

    def short_of_memory(self, some):
        if len(some) > 3:
            raise torch.OutOfMemoryError("out of memory")
        return real(self, some)

    monkeypatch.setattr(search.Search, "_read", short_of_memory)
    small = tune(encoder, pairs, grid, on_progress=heard.append)
    assert small.cosines == pytest.approx(whole.cosines, abs=1e-9, nan_ok=True) and sum(heard) == 88


@pytest.mark.parametrize("way", [pytest.param("bloom", marks=pytest.mark.soak), "mpnet"])
def test_models_that_run_another_way(tmp_path, way):
    encoder, pairs = Encoder.load(tiny(way, tmp_path), classical(), dtype="float64"), made_up()
    tuned = tune(encoder, pairs, Grid(posts=()))
    slow = slow_vectors(encoder, pairs, tuned)
    for i, recipe in enumerate(tuned.recipes):
        if recipe.post == "none":
            assert tuned.cosines[i] == pytest.approx(cosines(*slow[i]), abs=1e-6)


def test_too_few_pairs_to_whiten(tmp_path):
    encoder = Encoder.load(tiny("bert", tmp_path), classical())
    tuned = tune(encoder, made_up(44), Grid(heads="none", posts=(Whiten(),)))
    assert not any(r.post.startswith("whiten") for r in tuned.recipes)
    assert "whiten: 44 vectors differ in" in tuned.notes[0] and tuned.notes[0].startswith("classical: ")


def test_fewer_directions_than_components_are_whitened_all_the_same(tmp_path):
    """Behind a norm without weights of its own, vectors have one direction less than components."""
    encoder, pairs = load("bert", tmp_path), made_up(100)
    for name, p in encoder.backbone.model.named_parameters():
        if "LayerNorm" in name:
            p.data.fill_(1.0 if "weight" in name else 0.0)
    tuned = tune(encoder, pairs, Grid(heads="none", posts=(Whiten(),)))
    at = next(i for i, r in enumerate(tuned.recipes) if r.post == "whiten")
    assert tuned.encoder_of(at).encode(["a cat"]).shape == (1, 15) and not tuned.notes
