"""What is read inside layers, against the model's own modules."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.tiny import tiny_model, tiny_tokenizer

from afterword import Encoder, bellm, classical, prompt
from afterword.backbone.backbone import Backbone
from afterword.backbone.self_check import check
from afterword.errors import AttentionNotSeen, MethodError
from afterword.text.tokenizer import Tokenizer

TEXTS = [[20, 30, 40, 50], [60, 70], [80, 90, 100, 110], [9] * 7, [25]]
SPLIT = {
    "gpt2": ("attn.c_proj", "attn.c_attn", lambda x: x[..., 128:]),
    "llama": ("o_proj", "v_proj", lambda x: x),
    "phi3": ("o_proj", "qkv_proj", lambda x: x[..., 96:]),
    "gpt_neox": ("attention.dense", "query_key_value", lambda x: x.unflatten(-1, (4, 48))[..., 32:].flatten(-2)),
    "gemma2": ("self_attn.o_proj", "v_proj", lambda x: x),
    "bert": ("attention.output.dense", "self.value", lambda x: x),
    "albert": ("attention.dense", None, None),  # one module for all layers
    "lfm2": ("self_attn.out_proj", None, None),  # some layers have no attention
    "bloom": ("self_attention.dense", None, None),
    "deberta-v2": ("attention.output.dense", None, None),
    "t5": ("SelfAttention.o", "SelfAttention.v", lambda x: x),
}
"""By family: the layer that multiplies by W_O, that which makes the values, and where in its output they are."""


def loaded(kind: str, **changes: object) -> Backbone:
    model = tiny_model(kind, **changes)
    if kind not in ("bloom", "deberta-v2"):
        model.set_attn_implementation("afterword")
    return check(model, Tokenizer(tiny_tokenizer(kind)))


def literal(model: torch.nn.Module, text: list[int], ending: str) -> list[torch.Tensor]:
    """The outputs (n, D) of every layer of this name, by the model's own eager attention."""
    seen: list[torch.Tensor] = []
    named = [m for name, m in model.named_modules() if name.endswith(ending)]
    hooks = [m.register_forward_hook(lambda m, _, out: seen.append(out[0])) for m in named]
    implementation = model.config._attn_implementation
    model.set_attn_implementation("eager")
    with torch.no_grad():
        model(input_ids=torch.tensor([text]))
    model.set_attn_implementation(implementation)
    for hook in hooks:
        hook.remove()
    return seen


def close(found: np.ndarray, wanted: torch.Tensor) -> bool:
    return float(np.abs(found - wanted.numpy()).max()) <= 1e-5 * float(wanted.abs().max())


@pytest.mark.parametrize("kind", SPLIT)
def test_sums_and_means_of_layers(kind: str) -> None:
    own = loaded(kind)
    out, values, part = SPLIT[kind]
    plain = {"add_special_tokens": False}
    methods = {
        "all": classical(states="attention:all", **plain),
        "two": classical("last", states="attention:0+-1", **plain),
        **({"values": classical(states="values:upper", **plain)} if values else {}),
    }
    found = Encoder(own, methods["all"]).encode_many(TEXTS, methods)
    for i, text in enumerate(TEXTS):
        layers = literal(own.model, text, out)
        assert len(layers) == own.facts.layers
        assert close(found["all"][i], sum(layers).mean(0))
        assert close(found["two"][i], layers[0][-1] + layers[-1][-1])
        if values and part:
            upper = [part(v) for v in literal(own.model, text, values)][own.facts.layers // 2 :]
            assert close(found["values"][i], (sum(upper) / len(upper)).mean(0))
            assert Encoder(own, methods["values"]).dimension == upper[0].shape[-1]


def test_every_way_of_running_gives_the_same() -> None:
    flat = loaded("llama")
    stacked = Backbone(flat.model, flat.tokenizer, replace(flat.facts, way="stacked", shares=False), flat.modules)
    eager = Backbone(flat.model, flat.tokenizer, replace(flat.facts, way="eager", shares=False))
    method = classical(states="attention:1+2")
    wanted = torch.from_numpy(Encoder(flat, method).encode(TEXTS))
    for other in (stacked, eager):
        assert close(Encoder(other, method).encode(TEXTS), wanted)
    assert eager.insides.blocks == flat.insides.blocks
    with pytest.raises(AttentionNotSeen, match="runs its own attention, which does not expose values"):
        Encoder(eager, classical(states="values:all"))


def test_routers() -> None:
    own = loaded("mixtral")
    found = Encoder(own, classical("last", states="router")).encode(TEXTS)
    assert found.shape == (len(TEXTS), 12)
    for row, text in zip(found, TEXTS, strict=True):
        assert close(row, torch.cat([logits[-1] for logits in literal(own.model, [1, *text], "mlp.gate")]))
    soft = Encoder(own, classical("last", states="router:softmax")).encode(TEXTS)
    assert close(soft, torch.from_numpy(found).unflatten(1, (3, 4)).softmax(-1).flatten(1))
    eager = Backbone(own.model, own.tokenizer, replace(own.facts, way="eager", shares=False))
    assert close(Encoder(eager, classical("last", states="router")).encode(TEXTS), torch.from_numpy(found))


def test_a_shared_beginning_and_layers_that_see_both_ways() -> None:
    own = loaded("llama")
    whole = Backbone(own.model, own.tokenizer, replace(own.facts, shares=False), own.modules)
    for states in ("attention:all", "values:all"):
        method = prompt("eol", states=states)
        texts = ["a cat", "the dog", "it rains"]
        assert close(Encoder(own, method).encode(texts), torch.from_numpy(Encoder(whole, method).encode(texts)))
        both = Encoder(own, bellm(2, states=states, template=None))
        assert abs(both.encode(TEXTS) - Encoder(own, classical(states=states)).encode(TEXTS)).max() > 1e-3
    with pytest.raises(MethodError, match="states='values:all' is not defined for two streams"):
        Encoder(own, bellm(2, states="values:all", couple="add"))


def test_a_model_without_attention() -> None:
    own = loaded("mamba")
    for kind in ("attention:all", "values:0"):
        with pytest.raises((AttentionNotSeen, Exception), match="no layer with attention: use states='layer:k'"):
            Encoder(own, classical(states=kind))
