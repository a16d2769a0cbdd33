"""Every recipe of the one pass is what `Encoder.encode` gives with that method and that step, one by one."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.tiny import tiny

import afterword.tune.search as search
from afterword import Encoder, classical, ditto, reba
from afterword.errors import InputError
from afterword.limits import Limits
from afterword.post import Normalise, RemoveTop, Whiten, parse_post
from afterword.scores import cosines, spearman
from afterword.tasks.pairs import ScoredPairs
from afterword.tune import Grid, Tuned, score, tune
from afterword.tune.noise import settled
from afterword.tune.report import save

WORDS = "the cat sat on a mat while dogs ran over hills and rivers near towns".split()
SMALL = {"num_hidden_layers": 2, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32}
GPT_SMALL = {"n_layer": 2, "n_embd": 16, "n_head": 2}
SPECS = {
    "bert": (SMALL, Grid(("promptbert",), (1, 2), heads="all")),
    "gpt2": (GPT_SMALL, Grid(("eol",), (1, 2), (1, 2), posts=(Whiten(), Whiten(5), RemoveTop(1)))),
    "llama": ({**SMALL, "num_key_value_heads": 1, "head_dim": 8}, Grid()),
}

pytestmark = pytest.mark.filterwarnings("ignore:ditto on")


def made_up(pairs: int = 44, seed: int = 0) -> ScoredPairs:
    random = np.random.default_rng(seed)

    def text() -> str:
        return " ".join(random.choice(WORDS, random.integers(4, 9)))

    left = tuple(text() for _ in range(pairs))
    right = tuple(text() if random.random() < 0.7 else a + " too" for a in left)
    return ScoredPairs(left, right, random.normal(size=pairs), ("",) * pairs)


def load(kind: str, folder: Path, method=None, **options) -> Encoder:
    return Encoder.load(tiny(kind, folder, **SPECS[kind][0]), method or classical(), dtype="float64", **options)


@pytest.fixture(scope="module", params=list(SPECS))
def found(request, tmp_path_factory):
    """A model, pairs, and what tuning gives; most pairs are past the beginning, and nothing is held."""
    encoder, pairs = load(request.param, tmp_path_factory.mktemp(request.param)), made_up()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "BEGINNING", 9)
        patch.setattr(search, "HELD", 0 if request.param == "gpt2" else search.HELD)
        limits = Limits(encoder.max_length, batch_tokens=300)
        return encoder, pairs, tune(encoder, pairs, SPECS[request.param][1], seed=2, limits=limits)


def slow_vectors(encoder: Encoder, pairs: ScoredPairs, tuned: Tuned) -> dict[int, np.ndarray]:
    """Per recipe, the vectors (2, n, D) of its method, every method run by itself where its layout is its own."""
    methods = {r.spec: r.method for r in tuned.recipes}
    every = encoder.encode_many([*pairs.left, *pairs.right], methods)
    return {i: every[r.spec].reshape(2, len(pairs.gold), -1) for i, r in enumerate(tuned.recipes)}


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
            centred = vectors - vectors[:, ranking[:9]].mean((0, 1))
            if np.linalg.norm(centred, axis=-1).min() < 1e-6 * np.linalg.norm(vectors, axis=-1).max():
                assert np.isnan(tuned.choice.rank[i])
                continue
            expected = cosines(*centred)
        else:
            (step,) = parse_post(post)
            dense = step.fit(torch.from_numpy(vectors[:, ranking].reshape(-1, vectors.shape[-1])))
            expected = cosines(*dense(torch.from_numpy(vectors)).numpy())
        checked[post if post in checked else "fitted"] += 1
        # a fitted step is kept in float32: behind it the last bits of float64 vectors may tip one of its numbers
        assert tuned.cosines[i] == pytest.approx(expected, abs=1e-6 if post in ("none", "centre") else 1e-4), (
            tuned.recipes[i]
        )
        if np.ptp(expected) > 1e-9 and post in ("none", "centre"):
            expected = settled(expected)  # of equal cosines, rounding decides which is larger
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
            vectors = tuned.made(i).encode([*pairs.left, *pairs.right]).reshape(2, len(pairs.gold), -1)
            assert cosines(*vectors) == pytest.approx(tuned.cosines[i], abs=2e-5)


def test_heads_are_dittos(found):
    encoder, pairs, tuned = found
    for head in ((0, 0), (1, 1)):
        method = ditto(head)
        at = next(i for i, r in enumerate(tuned.recipes) if r.of_ditto and r.method == method)
        vectors = Encoder(encoder.backbone, method).encode([*pairs.left, *pairs.right])
        assert cosines(vectors[:44], vectors[44:]) == pytest.approx(tuned.cosines[at], abs=1e-6)


def test_noise_is_not_believed(tmp_path):
    encoder = load("bert", tmp_path)
    claims = [tune(encoder, made_up(60, seed), seed=seed).choice.improved for seed in range(8)]
    assert sum(claims) <= 1


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
    for post in ("centre", "whiten", "remove_top"):
        at = next(i for i, r in enumerate(tuned.recipes) if r.post.startswith(post))
        tuned.made(at).save(tmp_path / post)
        vectors = Encoder.load(tmp_path / post, dtype="float64").encode([*pairs.left, *pairs.right])
        assert cosines(vectors[:100], vectors[100:]) == pytest.approx(tuned.cosines[at], abs=2e-5)


def test_the_default_is_what_the_encoder_does_already(tmp_path):
    encoder, pairs = load("gpt2", tmp_path, reba(2)), made_up()
    tuned = tune(encoder, pairs, Grid(heads="none", posts=()))
    assert str(tuned.recipes[tuned.choice.default]) == "reba" and tuned.made(tuned.choice.default) is encoder
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
        vectors = tuned.made(i).encode([*pairs.left, *pairs.right])
        assert cosines(vectors[:44], vectors[44:]) == pytest.approx(tuned.cosines[i], abs=1e-6)


def test_texts_that_two_copies_would_cut_are_whole_in_one(tmp_path):
    encoder, pairs = load("gpt2", tmp_path, max_length=24), made_up()
    with pytest.warns(UserWarning, match="were cut"):
        tuned = tune(encoder, pairs, Grid(heads="none", posts=()), limits=Limits(24))
    with pytest.warns(UserWarning, match="were cut"):
        slow = slow_vectors(encoder, pairs, tuned)
    for i in range(0, len(tuned.recipes), 2):
        assert tuned.cosines[i] == pytest.approx(cosines(*slow[i]), abs=1e-6)


def test_batches_and_halving_change_nothing(tmp_path, monkeypatch):
    encoder, pairs = load("bert", tmp_path), made_up()
    whole, heard = tune(encoder, pairs), []
    real = search.Search._read

    def short_of_memory(self, some):
        if len(some) > 3:
            raise torch.OutOfMemoryError("out of memory")
        return real(self, some)

    monkeypatch.setattr(search.Search, "_read", short_of_memory)
    small = tune(encoder, pairs, told=heard.append)
    assert small.cosines == pytest.approx(whole.cosines, abs=1e-9, nan_ok=True) and sum(heard) == 88


@pytest.mark.parametrize("way", ["bloom", "mpnet"])
def test_models_that_run_another_way(tmp_path, way):
    encoder, pairs = Encoder.load(tiny(way, tmp_path), classical(), dtype="float64"), made_up()
    tuned = tune(encoder, pairs, Grid(posts=()))
    slow = slow_vectors(encoder, pairs, tuned)
    for i, recipe in enumerate(tuned.recipes):
        if recipe.post == "none":
            assert tuned.cosines[i] == pytest.approx(cosines(*slow[i]), abs=1e-6)


def test_bad_pairs(tmp_path):
    encoder, pairs = load("bert", tmp_path), made_up()
    with pytest.raises(InputError, match="39 pairs are too few"):
        tune(encoder, ScoredPairs(pairs.left[:39], pairs.right[:39], pairs.gold[:39], ()))
    with pytest.raises(InputError, match="all 44 pairs have the score 1"):
        tune(encoder, ScoredPairs(pairs.left, pairs.right, np.ones(44), ()))


def test_one_text_everywhere_is_named(tmp_path):
    encoder = load("bert", tmp_path)
    same = ScoredPairs(("a cat",) * 44, ("a cat",) * 44, np.arange(44.0), ())
    with pytest.raises(InputError, match="every recipe gives constant or non-finite cosines"):
        tune(encoder, same)


def test_blank_texts_are_read_as_a_full_stop(tmp_path):
    encoder, pairs = load("bert", tmp_path), made_up()
    blank, stop = (ScoredPairs((t, *pairs.left[1:]), pairs.right, pairs.gold, ()) for t in (" ", "."))
    assert np.array_equal(tune(encoder, blank).cosines, tune(encoder, stop).cosines, equal_nan=True)


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
    assert {r.post for r in tuned.recipes} >= {"whiten:dimensions=15"} and not tuned.notes
