"""Promise 1 (right): the algorithms of the ReBA paper as printed, loop by loop in float64, against the library."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.tiny import tiny

from afterword import Encoder, classical, echo, reba
from afterword.backbone.loading import load_backbone

KINDS = ("gpt2", "llama", "mistral", "bert")
TOLERANCE = {"gpt2": 1e-10, "bert": 1e-10, "llama": 5e-6, "mistral": 5e-6}  # the last two norm in float32 inside

texts = st.lists(st.integers(8, 290), min_size=1, max_size=9)
copies = st.integers(1, 4)


@lru_cache
def backbone(folder: Path, kind: str):
    return load_backbone(tiny(kind, folder / kind), dtype=torch.float64)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("literal")


class Literal:
    """One sequence through the model's own eager attention."""

    def __init__(self, own, ids: list[int]) -> None:
        model = own.model
        model.set_attn_implementation("eager")
        with torch.no_grad():
            out = model(input_ids=torch.tensor([ids]), output_attentions=True)
        model.set_attn_implementation("afterword")
        self.v = out.last_hidden_state[0].numpy()
        self.attentions = [a[0].double().numpy() for a in out.attentions]

    def algorithm_1(self) -> np.ndarray:
        n = len(self.v)
        a_new = np.zeros((n, n))
        for layer in self.attentions:
            for a in layer:
                symmetric = (a + a.T) / 2
                a_new = (a_new + symmetric) / 2 + np.abs(a_new - symmetric) / 2
        return a_new

    def algorithm_2(self, i: int, v: np.ndarray | None = None) -> np.ndarray:
        a_new, v = self.algorithm_1(), self.v if v is None else v
        e = np.zeros(v.shape[1])
        for k in range(i, len(v)):
            e += a_new[i, k] * v[k]
        return e


def special(own, fed: bool) -> tuple[list[int], list[int]]:
    return (own.tokenizer.prefix, own.tokenizer.suffix) if fed else ([], [])


def pooled(rows: list[np.ndarray] | np.ndarray, pool: str) -> np.ndarray:
    """The last row, the mean, or the mean weighted by i / (1 + ... + n) (SGPT, section 3.1)."""
    numbers = {"last": [0] * (len(rows) - 1) + [1], "mean": [1] * len(rows), "weighted": range(1, len(rows) + 1)}[pool]
    return np.average(rows, 0, list(numbers))


def close(kind: str, got: np.ndarray, expected: np.ndarray) -> bool:
    return float(np.abs(got - expected).max()) <= TOLERANCE[kind] * max(float(np.abs(expected).max()), 1e-9)


@pytest.mark.parametrize("kind", KINDS)
@examples(25)
@given(ids=texts, k=copies, pool=st.sampled_from(["last", "mean", "weighted"]), fed=st.booleans())
def test_algorithm_3(models: Path, kind: str, ids: list[int], k: int, pool: str, fed: bool) -> None:
    """A sentence: e_n, or the mean of e_i (Equation 5)."""
    own = backbone(models, kind)
    prefix, suffix = special(own, fed)
    literal = Literal(own, prefix + ids * k + suffix)
    rows = [literal.algorithm_2(len(prefix) + i) for i in range(len(ids))]
    expected = pooled(rows, pool)
    assert close(kind, Encoder(own, reba(k, pool, add_special_tokens=fed)).encode([ids])[0], expected)


@pytest.mark.parametrize("kind", KINDS)
@examples(25)
@given(ids=texts, k=copies, fed=st.booleans(), ends=st.tuples(st.integers(0, 8), st.integers(0, 8)))
def test_algorithm_2(models: Path, kind: str, ids: list[int], k: int, fed: bool, ends: tuple[int, int]) -> None:
    """A word of one or more tokens: the mean of their e_i."""
    own = backbone(models, kind)
    start, end = sorted(e % (len(ids) + 1) for e in ends)
    start, end = (start, end) if start < end else (0, len(ids))
    prefix, suffix = special(own, fed)
    literal = Literal(own, prefix + ids * k + suffix)
    expected = np.mean([literal.algorithm_2(len(prefix) + i) for i in range(start, end)], 0)
    got = Encoder(own, reba(k, add_special_tokens=fed)).encode_words([ids], [(start, end)])[0]
    assert close(kind, got, expected)


@pytest.mark.parametrize("kind", KINDS)
@examples(25)
@given(ids=texts, k=copies, fed=st.booleans())
def test_algorithm_1(models: Path, kind: str, ids: list[int], k: int, fed: bool) -> None:
    """The whole matrix."""
    own = backbone(models, kind)
    prefix, suffix = special(own, fed)
    expected = Literal(own, prefix + ids * k + suffix).algorithm_1()
    got = Encoder(own, reba(k, triangle="full", add_special_tokens=fed)).attention(ids)[1]
    assert close(kind, got, expected)
    upper = Encoder(own, reba(k, add_special_tokens=fed)).attention(ids)[1]
    assert close(kind, upper, np.triu(expected))


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
@examples(25)
@given(
    ids=texts,
    k=st.integers(1, 3),
    size=st.integers(1, 4),
    pool=st.sampled_from(["last", "mean", "weighted"]),
    fed=st.booleans(),
)
def test_section_6(models: Path, kind: str, ids: list[int], k: int, size: int, pool: str, fed: bool) -> None:
    """Chunks: each is repeated by itself; its first copy lends the states of the pass over the whole text."""
    own = backbone(models, kind)
    prefix, suffix = special(own, fed)
    whole = Literal(own, prefix + ids + suffix)
    rows = []
    for first in range(0, len(ids), size):
        chunk = ids[first : first + size]
        literal = Literal(own, prefix + chunk * k + suffix)
        v = literal.v.copy()
        for i in range(len(chunk)):
            v[len(prefix) + i] = whole.v[len(prefix) + first + i]
        rows += [literal.algorithm_2(len(prefix) + i, v) for i in range(len(chunk))]
    expected = pooled(rows, pool)
    encoder = Encoder(own, reba(k, pool, chunk=size, add_special_tokens=fed))
    assert close(kind, encoder.encode([ids])[0], expected)
    words = encoder.encode_words([ids], [[(0, len(ids)), (len(ids) - 1, len(ids))]])[0]
    assert close(kind, words, np.stack([np.mean(rows, 0), rows[-1]]))


@pytest.mark.parametrize("kind", KINDS)
@examples(25)
@given(ids=texts, k=copies, pool=st.sampled_from(["last", "mean", "weighted"]), fed=st.booleans())
def test_echo(models: Path, kind: str, ids: list[int], k: int, pool: str, fed: bool) -> None:
    """The last copy's last token, or its mean, or its mean weighted by position."""
    own = backbone(models, kind)
    prefix, suffix = special(own, fed)
    v = Literal(own, prefix + ids * k + suffix).v
    expected = pooled(v[len(prefix) + (k - 1) * len(ids) : len(prefix) + k * len(ids)], pool)
    assert close(kind, Encoder(own, echo(k, pool, add_special_tokens=fed)).encode([ids])[0], expected)


def test_the_last_layer_alone(models: Path) -> None:
    """attention="last_layer" fuses the heads of the last layer only."""
    own, ids = backbone(models, "gpt2"), [20, 30, 40, 50]
    literal = Literal(own, own.tokenizer.prefix + ids * 2 + own.tokenizer.suffix)
    literal.attentions = literal.attentions[-1:]
    expected = literal.algorithm_2(len(own.tokenizer.prefix) + 3)
    assert close("gpt2", Encoder(own, reba(attention="last_layer")).encode([ids])[0], expected)


def inside(own, ids: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Value vectors (L, n, K d) and W_O sum_j A_ij v_j (L, n, D), multiplied out from hidden states and attention."""
    model = own.model
    model.set_attn_implementation("eager")
    with torch.no_grad():
        out = model(input_ids=torch.tensor([ids]), output_attentions=True, output_hidden_states=True)
        values, aligned = [], []
        layers = getattr(model, "h", None) or model.layers
        for x, a, layer in zip(out.hidden_states[:-1], out.attentions, layers, strict=True):
            if hasattr(layer, "ln_1"):
                v = (layer.ln_1(x[0]) @ layer.attn.c_attn.weight + layer.attn.c_attn.bias).chunk(3, -1)[2]
                matrix, bias = layer.attn.c_proj.weight, layer.attn.c_proj.bias
            else:
                v = layer.input_layernorm(x[0]) @ layer.self_attn.v_proj.weight.T
                matrix, bias = layer.self_attn.o_proj.weight.T, 0.0
            size = matrix.shape[0] // a.shape[1]
            by_head = v.unflatten(-1, (-1, size)).repeat_interleave(matrix.shape[0] // v.shape[-1], 1)
            mixed = torch.stack([a[0, h].to(v.dtype) @ by_head[:, h] for h in range(a.shape[1])], 1)
            values.append(v.numpy())
            aligned.append((mixed.flatten(1) @ matrix + bias).numpy())
    model.set_attn_implementation("afterword")
    return np.stack(values), np.stack(aligned)


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
@examples(6)
@given(ids=texts, k=copies)
def test_what_is_read_inside_layers(models: Path, kind: str, ids: list[int], k: int) -> None:
    """AlignedWVA at the last token, Value Aggregation over all tokens, and ReBA's weights over values."""
    own = backbone(models, kind)
    prefix, suffix = special(own, True)
    values, aligned = inside(own, prefix + ids + suffix)
    assert close(kind, Encoder(own, classical("last", "attention:all")).encode([ids])[0], aligned.sum(0)[-1])
    assert close(kind, Encoder(own, classical(states="values:all")).encode([ids])[0], values.mean((0, 1)))
    repeated = prefix + ids * k + suffix
    literal, upper = Literal(own, repeated), inside(own, repeated)[0][1:].mean(0)
    rows = [literal.algorithm_2(len(prefix) + i, upper) for i in range(len(ids))]
    method = reba(k, "mean", states="values:upper")
    assert close(kind, Encoder(own, method).encode([ids])[0], sum(rows) / len(rows))
    words = Encoder(own, method).encode_words([ids], [[(0, 1), (0, len(ids))]])[0]
    assert close(kind, words, np.stack([rows[0], sum(rows) / len(rows)]))
