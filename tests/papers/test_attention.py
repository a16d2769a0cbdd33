"""Attention matrices against transformers' own eager attention, and against `Encoder.attention` and `weights`."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from tests.eager import BELLM, Eager, Seen
from tests.tiny import tiny

from afterword import Encoder, bellm, classical, ditto, echo, reba
from afterword.backbone.loading import load_backbone
from afterword.errors import AttentionNotSeen, InputError, MethodError, NoSuchHead
from afterword.papers.attention import (
    attention_heads,
    backward_attention,
    forward_attention,
    method_attention,
)

TEXT = "the thin bank"
CLOSE = {"rtol": 0, "atol": 2e-6}


class Model:
    def __init__(self, kind: str, folder: Path) -> None:
        self.backbone = load_backbone(tiny(kind, folder))
        self.eager = Eager(folder)

    def see(self, text: str, **options: object) -> Seen:
        return self.eager.see(self.eager.tokenizer(text, add_special_tokens=False).input_ids, **options)


@pytest.fixture(scope="module", params=["llama", "bert"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    return Model(request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return Model("llama", tmp_path_factory.mktemp("decoder"))


def test_heads_and_layers_are_the_models_own(model: Model):
    own = model.see(TEXT).attention.numpy()
    found = attention_heads(Encoder(model.backbone, classical()), TEXT, [(0, 2), (2, 3)], [1])
    assert [f.name for f in found] == ["head 1-3", "head 3-4", "layer 2, mean of 4 heads"]
    for f, wanted in zip(found, (own[0, 2], own[2, 3], own[1].mean(0)), strict=True):
        np.testing.assert_allclose(f.matrix, wanted, **CLOSE)
        assert len(f.tokens) == len(f.matrix) and f.weights is None


@pytest.mark.parametrize("options", [{}, {"attention": "last_layer"}, {"triangle": "full"}], ids=str)
def test_the_backward_matrix_is_the_maximum_over_heads(model: Model, options: dict[str, str]):
    encoder = Encoder(model.backbone, reba(pool="mean", **options))
    found = backward_attention(encoder, TEXT)
    a = model.see(TEXT, copies=2).attention.numpy()
    both = (a + a.swapaxes(-1, -2)) / 2
    first = 2 if options.get("attention") else 0
    strongest = both[first:].reshape(-1, *both.shape[2:])
    seen = np.ones_like(strongest[0]) if options.get("triangle") else np.triu(np.ones_like(strongest[0]))
    np.testing.assert_allclose(found.matrix, strongest.max(0) * seen, **CLOSE)
    assert found.weights is not None
    np.testing.assert_array_equal(found.matrix, encoder.attention(TEXT)[1].astype(float))
    np.testing.assert_array_equal(found.weights, encoder.weights(TEXT)[1].astype(float))


def test_a_bidirectional_layer_looks_forward(llama: Model):
    texts = [TEXT, "in the tin"]
    found = forward_attention(Encoder(llama.backbone, bellm(1)), texts)
    wanted = [[a.triu(1).sum(-1).mean() for a in llama.see(text, around=BELLM, last=1).attention] for text in texts]
    np.testing.assert_allclose(found.per_text, wanted, **CLOSE)
    np.testing.assert_allclose(found.layers, np.mean(wanted, 0), **CLOSE)
    assert found.both_ways == (3,) and (found.layers[:2] == 0).all() and 0 < found.layers[2] < 1
    lengths = np.array([llama.see(text, around=BELLM).length for text in texts])
    assert found.even == pytest.approx(((lengths - 1) / (2 * lengths)).mean())
    assert "per_text" not in found.to_json()


@pytest.mark.filterwarnings("ignore:ditto on llama")
def test_the_methods_own_matrix(model: Model):
    found = method_attention(Encoder(model.backbone, ditto("2-3")), TEXT)
    assert found is not None and found.name == "head 2-3" and found.weights is not None
    np.testing.assert_allclose(found.weights, found.matrix.diagonal(), **CLOSE)
    reading = method_attention(Encoder(model.backbone, reba()), TEXT)
    assert reading is not None and reading.name == "backward attention"
    assert method_attention(Encoder(model.backbone, classical()), TEXT) is None


def test_tokens_are_letters(llama: Model):
    encoder = Encoder(llama.backbone, reba())
    found = backward_attention(encoder, "a 银 b a")
    assert found.tokens[:6] == ("<s>", "a", "␣", "银 1/3", "银 2/3", "银 3/3")


def test_texts_heads_and_methods_without_a_matrix(llama: Model, tmp_path: Path):
    made = partial(Encoder, llama.backbone)
    plain = made(classical())
    for kind, value, call in (
        (NoSuchHead, "4-1", lambda: attention_heads(plain, TEXT, [(3, 0)])),
        (NoSuchHead, "layer 4", lambda: attention_heads(plain, TEXT, layers=[3])),
        (InputError, "max_length=5", lambda: attention_heads(made(classical(), max_length=5), "a b c d e f", [(0, 0)])),
        (MethodError, "echo", lambda: backward_attention(made(echo()), TEXT)),
        (MethodError, "chunk", lambda: backward_attention(made(reba(chunk=2)), TEXT)),
        (MethodError, "couple='add'", lambda: forward_attention(made(bellm(1, couple="add")), [TEXT])),
        (InputError, "text 1", lambda: forward_attention(plain, [TEXT, ""])),
    ):
        with pytest.raises(kind, match=value):
            call()
    with pytest.raises(AttentionNotSeen, match="mamba"):
        attention_heads(Encoder(load_backbone(tiny("mamba", tmp_path)), classical()), TEXT, [(0, 0)])
