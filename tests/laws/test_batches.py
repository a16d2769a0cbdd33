"""Promise 2: a vector is the same alone and in any batch, order and number of threads, within 1e-5.

The tolerance is relative to the vector's largest component. Long and short texts share batches, and linear layers run
with plain and with packed weights.
"""

import copy
import pickle
import random

import numpy as np
import pytest
import torch
from tests.tiny import tiny_tokenizer
from transformers import AutoModel, GPT2Config, LlamaConfig

from afterword import Encoder, classical, ditto, echo, ensemble, prompt, reba
from afterword.backbone.loading import load_backbone
from afterword.backbone.packed_linear import pack_linears, packed_layers, plain_linears
from afterword.backbone.self_check import check
from afterword.methods import scsp, token_prepending
from afterword.text.tokenizer import Tokenizer

CONFIGS = {
    "gpt2": GPT2Config(n_embd=128, n_layer=3, n_head=4, n_positions=1024, vocab_size=300),
    "llama": LlamaConfig(
        hidden_size=128, intermediate_size=352, num_hidden_layers=3, num_attention_heads=8, num_key_value_heads=2,
        vocab_size=300, max_position_embeddings=1024,
    ),
}  # fmt: skip
THREADS = (1, 2, 3)
SAME = 1e-5
METHODS = {
    "gpt2": [classical(), reba(pool="mean"), prompt("bellm")],
    "llama": [
        echo(pool="last"),
        reba(),
        prompt("bellm", "weighted", "first_last"),
        ensemble([echo(), prompt("cot")]),
        token_prepending(),
        scsp(),
    ],
    "minilm": [ditto("1-10"), reba(pool="mean")],
    "afterword-mini": [classical(), reba(states="attention:all")],
}
"""One method for each way through the layers: fused attention, attention that is read, a shared prefix, bidirectional
layers, ensembles, and states inside layers."""

SHORT = [
    "dog", "a b", "dog", "the cat sat on the mat", "I", "what is this?", "a c", "no", "x" * 64,
    "rain falls on the roof of the old house by the river", "the cat sat on the map", "two tales",
]  # fmt: skip
WORDS = "when the rain had gone the man went out to look at the river and found it was not there".split()


def long_text(kind: str) -> str:
    """About 200 tokens, by a tokenizer of words, of parts of words or of bytes."""
    text = " ".join(WORDS[i % len(WORDS)] for i in range(150))
    return text if kind in ("minilm", "afterword-mini") else text[:200]


@pytest.fixture(scope="module", params=["packed", "plain"])
def kernel(request):
    if request.param == "packed" and not torch.backends.mkldnn.is_available():
        pytest.skip("torch was built without oneDNN")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AFTERWORD_PACKED", "1" if request.param == "packed" else "0")
        yield request.param


@pytest.fixture(scope="module", params=list(METHODS))
def model(request, kernel):
    kind = request.param
    if kind == "minilm":
        return kind, load_backbone(request.getfixturevalue(kind))
    if kind == "afterword-mini":
        return kind, load_backbone(kind)
    torch.manual_seed(0)
    made = AutoModel.from_config(CONFIGS[kind], attn_implementation="afterword").eval()
    backbone = check(made, Tokenizer(tiny_tokenizer(kind)))
    assert bool(pack_linears(made)) == (kernel == "packed")
    return kind, backbone


def difference(vectors: np.ndarray, expected: np.ndarray) -> float:
    """The largest difference of a component, relative to the largest component of its vector."""
    return float((np.abs(vectors - expected).max(1) / np.abs(expected).max(1)).max())


@pytest.mark.slow
def test_a_vector_is_the_same_alone_and_in_any_batch(model, kernel):
    kind, backbone = model
    texts, shuffled = [*SHORT, long_text(kind)], random.Random(0)
    for method in METHODS[kind]:
        encoder = Encoder(backbone, method)
        torch.set_num_threads(1)
        alone = np.concatenate([encoder.encode([text]) for text in texts])
        for threads in THREADS:
            torch.set_num_threads(threads)
            for batch_tokens in (40, 300, 100_000):
                order = shuffled.sample(range(len(texts)), len(texts))
                batch = encoder.encode([texts[i] for i in order], batch_tokens=batch_tokens)
                assert difference(batch, alone[order]) <= SAME, (kind, kernel, method.name, threads, batch_tokens)


def test_a_repeated_text_has_one_vector(model):
    kind, backbone = model
    encoder = Encoder(backbone, METHODS[kind][0])
    vectors = encoder.encode(["dog", "a b", *["dog"] * 35])
    assert (vectors[2:] == vectors[0]).all()
    assert difference(vectors[:1], encoder.encode(["dog"])) <= SAME


def test_packed_weights_give_the_vectors_of_plain_ones_and_follow_changes(monkeypatch):
    if not torch.backends.mkldnn.is_available():
        pytest.skip("torch was built without oneDNN")
    monkeypatch.setenv("AFTERWORD_PACKED", "1")
    encoder = Encoder.load("afterword-mini", classical())
    layers = packed_layers(encoder.backbone.model)
    assert len(layers) == 7 * encoder.backbone.facts.layers
    packed = encoder.encode(SHORT)
    with plain_linears():
        assert difference(packed, encoder.encode(SHORT)) <= SAME
    for copied in (copy.deepcopy(encoder), pickle.loads(pickle.dumps(encoder))):
        assert len(packed_layers(copied.backbone.model)) == len(layers)
        assert difference(copied.encode(SHORT), packed) <= SAME
    weight = layers[0].module.weight
    with torch.no_grad():
        weight.mul_(1.5)
    changed = encoder.encode(SHORT)
    assert difference(changed, packed) > 1e-3
    weight.data.div_(1.5)  # not noticed by itself
    encoder.backbone.renew()
    assert difference(encoder.encode(SHORT), packed) <= SAME
