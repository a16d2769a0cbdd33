"""EmbedFilter is a dense layer of the model's own head, made when the encoder is."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.tiny import tiny
from transformers import AutoModelForCausalLM

from afterword import Encoder, classical, echo
from afterword.errors import MethodError, ModelError, NotFitted
from afterword.post import Dense, EmbedFilter, parse_post

TEXTS = ["the bank of the river", "A cat.", "é and more"]


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Encoder:
    return Encoder.load(tiny("llama", tmp_path_factory.mktemp("llama"), tie_word_embeddings=True), classical())


@examples(25)
@given(
    spectrum=st.sampled_from(["edge", "tail", "head"]),
    keep=st.one_of(st.none(), st.integers(1, 64), st.floats(0.02, 1)),
)
def test_it_keeps_singular_directions_of_the_head(llama: Encoder, spectrum: str, keep: float | None):
    table = llama.backbone.model.get_input_embeddings().weight.detach().double().numpy()
    right = np.linalg.svd(table, full_matrices=False)[2]
    k = 32 if keep is None else keep if isinstance(keep, int) else max(1, int(64 * keep))
    first = {"edge": (64 - k) // 2, "tail": 0, "head": 64 - k}[spectrum]
    wanted = right[first : first + k]
    (step,) = replace(llama, post=(EmbedFilter(spectrum, keep),)).post  # type: ignore[arg-type]
    assert isinstance(step, Dense) and step.weight.shape == (k, 64) and step.bias is None
    rows = step.weight.double().numpy()
    np.testing.assert_allclose(rows.T @ rows, wanted.T @ wanted, atol=1e-6)


def test_it_is_made_with_the_encoder_and_saved_as_a_layer(llama: Encoder, tmp_path: Path):
    encoder = replace(llama, post=parse_post("embed_filter:spectrum=tail,keep=0.25+normalise"))
    assert encoder.fitted and encoder.dimension == 16
    encoder.save(tmp_path / "a")
    again = Encoder.load(tmp_path / "a")
    assert again.fingerprint == encoder.fingerprint
    assert np.array_equal(again.encode(TEXTS), encoder.encode(TEXTS))
    other = replace(llama, method=echo(), post=encoder.post)
    assert np.array_equal(other.post[0].weight, encoder.post[0].weight)  # type: ignore[attr-defined]
    from sentence_transformers import SentenceTransformer

    theirs = SentenceTransformer(str(tmp_path / "a"), device="cpu").encode(TEXTS)
    np.testing.assert_allclose(theirs, again.encode(TEXTS), atol=2e-6)


def test_steps_behind_it_are_fitted_to_what_it_gives(llama: Encoder):
    encoder = replace(llama, post=parse_post("embed_filter:keep=8+centre")).fit(TEXTS)
    np.testing.assert_allclose(encoder.encode(TEXTS).mean(0), 0, atol=1e-5)
    with pytest.raises(NotFitted, match="Centre"):
        replace(llama, post=parse_post("embed_filter+centre")).encode(TEXTS)


def test_a_head_that_is_not_tied_is_read_from_the_checkpoint_or_from_another(llama: Encoder, tmp_path: Path):
    folder = tiny("llama", tmp_path / "own", tie_word_embeddings=False)
    whole = AutoModelForCausalLM.from_pretrained(folder)
    torch.manual_seed(1)
    torch.nn.init.normal_(whole.lm_head.weight)
    whole.save_pretrained(folder)
    bare = Encoder.load(folder, classical())
    (step,) = replace(bare, post=(EmbedFilter("tail", 1),)).post
    largest = torch.linalg.svd(whole.lm_head.weight.detach())[2][0]
    assert float((step.weight[0] @ largest).abs()) == pytest.approx(1, abs=1e-5)  # type: ignore[attr-defined]
    bare.save(tmp_path / "saved")
    saved = Encoder.load(tmp_path / "saved")
    with pytest.raises(ModelError, match="head"):
        replace(saved, post=(EmbedFilter("tail", 1),))
    (named,) = replace(saved, post=(EmbedFilter("tail", 1, str(folder)),)).post
    assert torch.equal(named.weight, step.weight)  # type: ignore[attr-defined]


def test_what_has_no_head_is_refused(tmp_path: Path):
    bert = Encoder.load(tiny("bert", tmp_path / "bert"), classical())
    with pytest.raises(ModelError, match="bert"):
        replace(bert, post=(EmbedFilter(),))


@pytest.mark.parametrize(
    ("call", "value"),
    [
        (lambda _: EmbedFilter("middle"), "spectrum='middle'"),  # type: ignore[arg-type]
        (lambda _: EmbedFilter(keep=0), "keep=0"),
        (lambda _: EmbedFilter(keep=1.5), "keep=1.5"),
        (lambda _: EmbedFilter()(torch.ones(1, 4)), "EmbedFilter"),
        (lambda llama: replace(llama, post=(EmbedFilter(keep=65),)), "keep=65"),
    ],
)
def test_a_mistake_is_named(llama: Encoder, call, value: str):
    with pytest.raises(MethodError, match=value):
        call(llama)
