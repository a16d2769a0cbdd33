"""A text's vector is bitwise the same alone, in any batch, order and `batch_tokens`, on any number of threads.

Processors differ: MKL's plain kernels depend on the batch with two threads on Intel. So each kernel is asked about
each shape of layer first: where the probe says that the bits hold they must, where it says not they must not. What the
probe chooses holds everywhere, unless it says that nothing does.
"""

import random

import numpy as np
import pytest
import torch
from tests.tiny import tiny_tokenizer
from transformers import AutoModel, GPT2Config, LlamaConfig

from afterword import Encoder, classical, ditto, echo, ensemble, prompt, reba
from afterword.backbone.backbone import Backbone
from afterword.backbone.linear_probe import choose, keeps
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
THREADS = (1, 2, 5)
"""On two, MKL may split long sums; on more, threads of element-wise functions get parts that are not whole vectors."""
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
"""One method for each way through the layers: fused attention, attention that is read, a beginning that is shared,
layers that see both ways, mixtures, and what is read inside layers. How their states are pooled adds no product."""

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


def company(n: int, threads: int) -> list[tuple[int, list[int]]]:
    """Batches of so many tokens and the order of texts in them; each number of threads has its own."""
    shuffled = random.Random(threads)
    first = (40, list(range(n))[::-1]) if threads == 1 else (300, shuffled.sample(range(n), n // 2))
    return [first, (100_000, shuffled.sample(range(n), n))]


def bits(vectors: np.ndarray) -> np.ndarray:
    return vectors.view(np.uint32)


@pytest.fixture(params=["packed", "plain", "chosen"])
def kernel(request, monkeypatch):
    """Which kernel runs is measured for each shape of layer; here each is tried for all layers, too."""
    if request.param == "packed" and not torch.backends.mkldnn.is_available():
        pytest.skip("torch was built without oneDNN")
    monkeypatch.setenv("AFTERWORD_KERNELS", "" if request.param == "chosen" else request.param)
    return request.param


def promised(backbone: Backbone, kernel: str, threads: int) -> bool:
    """Whether the probe says that a kernel keeps the bits at every shape of a model's layers."""
    torch.set_num_threads(threads)
    shapes = backbone.packed.shapes()
    assert shapes
    if kernel == "chosen":
        return all(choose(shape, torch.float32).holds for shape in shapes)
    return all(keeps(shape, torch.float32, kernel) for shape in shapes)


def tried_elsewhere(backbone: Backbone, kernel: str) -> bool:
    """Whether the probe chose one kernel for all layers, which is tried as such."""
    return kernel == "chosen" and len({choose(s, torch.float32).kernel for s in backbone.packed.shapes()}) == 1


def test_who_shares_what_a_template_begins_with_is_decided_text_by_text():
    """All texts of the law below do but one, whose "t" is one token with the template's last blank."""
    tokenizer = Tokenizer(tiny_tokenizer("llama"))
    writings = prompt("bellm").layout.write(SHORT, tokenizer)
    assert [t for t, w in zip(SHORT, writings, strict=True) if not w.segments[0].prefix] == ["two tales"]


@pytest.mark.slow
@pytest.mark.parametrize("threads", THREADS)
def test_alone_is_bitwise_what_it_is_in_any_batch(model, kernel, threads):
    kind, backbone = model
    if threads > 2 and kernel == "packed":
        return  # it does the activations' work too
    holds = promised(backbone, kernel, threads)
    if tried_elsewhere(backbone, kernel):
        return
    texts = [*SHORT, long_text(kind)]
    wrong = []
    for method in METHODS[kind]:
        encoder = Encoder(backbone, method)
        alone = {text: bits(encoder.encode([text]))[0] for text in dict.fromkeys(texts)}
        for tokens, order in company(len(texts), threads):
            batch = bits(encoder.encode([texts[i] for i in order], batch_tokens=tokens))
            differ = [texts[i][:20] for i, b in zip(order, batch, strict=True) if (alone[texts[i]] != b).any()]
            wrong += [(method.name, tokens, differ)] if differ else []
    if holds:
        assert not wrong, f"{kind}, {kernel}, {threads} threads: {wrong}"
    else:
        assert wrong, f"{kind}, {kernel}, {threads} threads: the probe says that the bits do not hold, and they do"


@pytest.mark.slow
def test_more_threads_give_the_bits_of_one(model, kernel):
    kind, backbone = model
    if kernel == "chosen" or not all(promised(backbone, kernel, threads) for threads in THREADS):
        return  # another kernel may be chosen for more threads, and one that splits sums gives other bits on them
    texts = [*SHORT, long_text(kind)]
    for method in METHODS[kind]:
        encoder, found = Encoder(backbone, method), []
        for threads in THREADS:
            torch.set_num_threads(threads)
            found.append(bits(encoder.encode(texts)))
        assert all((vectors == found[0]).all() for vectors in found), f"{kind}, {method.name}"


def test_a_text_is_found_once_for_every_time_it_is_there(model):
    """The same text twice in a batch, and a batch of nothing but one text."""
    kind, backbone = model
    encoder = Encoder(backbone, METHODS[kind][0])
    alone = bits(encoder.encode(["dog"]))
    assert (bits(encoder.encode(["dog"] * 37)) == alone).all()


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
