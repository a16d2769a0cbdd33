"""Encoders that share a model: which forwards they share, and what fitting does."""

from dataclasses import replace

import numpy as np
import pytest
from tests.tiny import tiny

from afterword import Encoder
from afterword.errors import InputError
from afterword.methods.serialize import parse_method
from afterword.post import Normalise, Whiten, parse_post
from afterword.tasks.candidates import Fitting, candidates
from afterword.tasks.vectors import CachedEmbedder

TEXTS = [
    f"the {a} {b} over the {c}" for a in ("cat", "old dog", "bird") for b in ("sat", "jumps", "runs") for c in "xyz"
]
NONE = {"none": ()}


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Encoder:
    return Encoder.load(tiny("gpt2", tmp_path_factory.mktemp("gpt2")), "classical")


def methods(*specs: str) -> dict:
    return {spec: parse_method(spec) for spec in specs}


def lookup(candidate) -> CachedEmbedder:
    return CachedEmbedder(candidate.embedder, candidate.cache, candidate.raw, candidate.post)


def test_methods_share_a_forward_where_they_can(gpt2: Encoder):
    found = candidates(gpt2, methods("classical", "prompt:template=eol", "echo", "reba"), NONE)
    assert [c.name for c in found] == ["classical", "prompt:template=eol", "echo", "reba"]
    plain, prompt, echo, reba = found
    assert plain.cache is echo.cache is reba.cache is not prompt.cache
    assert reba.cache.names == ("classical", "echo", "reba") and prompt.cache.names == ("prompt:template=eol",)
    for c in found:
        whole = Encoder.load(gpt2.backbone.model.config._name_or_path, c.raw)
        assert np.allclose(lookup(c).encode(TEXTS), whole.encode(TEXTS), atol=2e-5)
        assert c.digest == whole.fingerprint


def test_steps_stand_behind_the_encoders_own_on_the_same_vectors(gpt2: Encoder):
    own = Encoder(gpt2.backbone, gpt2.method, (Normalise(),))
    posts = {"none": (), "truncate:dimensions=5": parse_post("truncate:dimensions=5")}
    plain, cut = candidates(own, methods("classical"), posts)
    assert (plain.name, cut.name) == ("classical", "classical+truncate:dimensions=5")
    assert plain.cache is cut.cache and plain.digest != cut.digest
    vectors = lookup(plain).encode(TEXTS)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    assert np.array_equal(lookup(cut).encode(TEXTS), vectors[:, :5])


def test_fitting_is_that_of_the_encoder(gpt2: Encoder):
    (made,) = candidates(gpt2, methods("classical"), {"w": (Whiten(dimensions=4), Normalise())})
    assert made.unfitted
    fitted = made.fit(TEXTS)
    assert not fitted.unfitted and fitted.embedder.fitted
    wanted = Encoder(gpt2.backbone, gpt2.method, made.post).fit(TEXTS).encode(["a new text", *TEXTS])
    assert np.allclose(lookup(fitted).encode(["a new text", *TEXTS]), wanted, atol=1e-5)
    with pytest.raises(InputError, match="--fit"):
        made.fit([])


def test_weights_that_are_fitted_on_given_texts_share_forwards_too(gpt2: Encoder):
    fitting = Fitting.on(TEXTS)
    plain, tfidf = candidates(gpt2, methods("classical", "tfidf"), NONE, fitting=fitting)
    assert plain.cache is tfidf.cache and not tfidf.unfitted
    wanted = Encoder(gpt2.backbone, parse_method("tfidf")).fit(TEXTS).encode(TEXTS)
    assert np.allclose(lookup(tfidf).encode(TEXTS), wanted, atol=1e-5)


def test_weights_that_each_task_fits_wait_for_it(gpt2: Encoder):
    (tfidf,) = candidates(gpt2, methods("tfidf"), {"w": (Whiten(dimensions=4),)}, fitting=Fitting())
    assert tfidf.unfitted and tfidf.cache.names == ()
    wanted = Encoder(gpt2.backbone, parse_method("tfidf"), (Whiten(dimensions=4),)).fit(TEXTS).encode(TEXTS)
    assert np.allclose(lookup(tfidf.fit(TEXTS)).encode(TEXTS), wanted, atol=1e-4)


def test_what_an_encoder_is_told_apart_by(gpt2: Encoder):
    (plain,) = candidates(gpt2, methods("classical"), NONE)
    (short,) = candidates(replace(gpt2, max_length=6), methods("classical"), NONE)
    assert plain.about["identity"] == gpt2.identity != short.about["identity"]
    differ = {k for k, v in plain.about["settings"].items() if v != short.about["settings"][k]}
    assert differ == {"max_length"} and short.about["settings"]["max_length"] == 6
