"""Promise 2: a vector is the same alone and in any batch, order and number of threads, within 1e-5.

The tolerance is relative to the vector's largest component. Long and short texts share batches, and linear layers run
with plain and with packed weights.
"""

import random

import numpy as np
import pytest
import torch
from tests.tiny import tiny_tokenizer
from transformers import AutoModel, GPT2Config, LlamaConfig

from afterword import Encoder, classical, ditto, echo, ensemble, prompt, reba
from afterword.backbone.loading import load_backbone
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


@pytest.fixture(scope="module", params=list(METHODS))
def model(request):
    kind = request.param
    if kind == "minilm":
        return kind, load_backbone(request.getfixturevalue(kind))
    if kind == "afterword-mini":
        return kind, load_backbone(kind)
    torch.manual_seed(0)
    made = AutoModel.from_config(CONFIGS[kind], attn_implementation="afterword").eval()
    return kind, check(made, Tokenizer(tiny_tokenizer(kind)))


@pytest.fixture(params=["packed", "plain"])
def kernel(request, monkeypatch):
    if request.param == "packed" and not torch.backends.mkldnn.is_available():
        pytest.skip("torch was built without oneDNN")
    monkeypatch.setenv("AFTERWORD_KERNELS", request.param)
    return request.param


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


def test_fused_activations_are_found_where_they_are_alone(model, monkeypatch):
    """A packed layer does the activation's work too in the feed-forward blocks of GPT-2, Llama and BERT."""
    if not torch.backends.mkldnn.is_available():
        pytest.skip("torch was built without oneDNN")
    _, backbone = model
    monkeypatch.setenv("AFTERWORD_KERNELS", "plain")
    encoder = Encoder(backbone, classical())
    plain = encoder.encode(SHORT)
    monkeypatch.setenv("AFTERWORD_KERNELS", "packed")
    packed = encoder.encode(SHORT)
    assert sum(layer.act is not None for layer in backbone.packed.layers) == backbone.facts.layers
    assert np.abs(packed - plain).max() <= 2e-6 * np.abs(plain).max()
    assert not any({"forward", "_compiled_call_impl"} & set(vars(m)) for m in backbone.model.modules())
