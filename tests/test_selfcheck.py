from collections.abc import Callable
from pathlib import Path
from types import MethodType
from typing import Any

import numpy as np
import pytest
import torch
from tests.families import difference, encode, texts
from tests.tiny import tiny, tiny_tokenizer
from torch import Tensor, nn

from afterword import Encoder, bellm, classical, prompt, reba
from afterword.errors import AttentionNotSeen, UnsupportedModel
from afterword.loading import load_backbone
from afterword.selfcheck import check
from afterword.tokens import Tokenizer


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    return tiny("llama", tmp_path / "llama")


def with_layer_replaced(folder: Path, forward: Callable[..., Any]) -> tuple[nn.Module, Any]:
    """The model with another forward in its middle layer's attention, and its backbone, loaded from it."""
    model = load_backbone(folder).model
    model.layers[1].self_attn.forward = MethodType(forward, model.layers[1].self_attn)
    return model, check(model, Tokenizer(tiny_tokenizer("llama")))


def alone(model: Any, ids: list[int]) -> np.ndarray:
    """The mean state of <s> and one text, by the model's own eager attention."""
    was = model.config._attn_implementation
    model.set_attn_implementation("eager")
    with torch.no_grad():
        state = model(input_ids=torch.tensor([[1, *ids]])).last_hidden_state[0].mean(0)
    model.set_attn_implementation(was)
    return state.numpy()


def projected(module: Any, hidden: Tensor, embeddings: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb, repeat_kv

    shape = (*hidden.shape[:2], -1, module.head_dim)
    q, k, v = (p(hidden).view(shape).transpose(1, 2) for p in (module.q_proj, module.k_proj, module.v_proj))
    q, k = apply_rotary_pos_emb(q, k, *embeddings)
    return q, repeat_kv(k, 2), repeat_kv(v, 2)


def own_attention(module: Any, hidden_states: Tensor, position_embeddings: Any, **_: Any) -> tuple[Tensor, None]:
    """Causal attention of the layer's own, that asks no interface."""
    q, k, v = projected(module, hidden_states, position_embeddings)
    out = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=hidden_states.shape[1] > 1)
    return module.o_proj(out.transpose(1, 2).flatten(2)), None


def no_attention_at_all(module: Any, hidden_states: Tensor, **_: Any) -> tuple[Tensor, None]:
    """Each token by itself: flat texts cannot leak, only the count of calls tells."""
    return module.o_proj(module.q_proj(hidden_states)), None


def ignoring_the_mask(module: Any, hidden_states: Tensor, position_embeddings: Any, **_: Any) -> tuple[Tensor, Any]:
    """Through the interface, without the mask."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
    from transformers.models.llama.modeling_llama import eager_attention_forward

    q, k, v = projected(module, hidden_states, position_embeddings)
    module.num_key_value_groups = 1
    call = ALL_ATTENTION_FUNCTIONS.get_interface(module.config._attn_implementation, eager_attention_forward)
    out, weights = call(module, q, k, v, None, scaling=module.scaling)
    return module.o_proj(out.flatten(2)), weights


@pytest.mark.parametrize("forward", [own_attention, no_attention_at_all, ignoring_the_mask])
def test_a_layer_that_ignores_the_registration_is_noticed(llama: Path, forward: Callable[..., Any]):
    model, backbone = with_layer_replaced(llama, forward)
    assert backbone.facts.way == "eager"
    got = encode(backbone, classical(), texts())
    assert difference(got, np.stack([alone(model, t) for t in texts()])) < 1e-5
    plain = encode(load_backbone(llama), classical(), texts())
    assert difference(got, plain) > 1e-4 or forward is own_attention
    with pytest.raises(AttentionNotSeen):
        encode(backbone, bellm(2), texts())


def test_what_a_replaced_layer_does_not_show_is_not_read(llama: Path):
    _, backbone = with_layer_replaced(llama, own_attention)
    with pytest.raises(AttentionNotSeen, match="llama shows no attention weights in each of its 3 layers"):
        Encoder(backbone, reba())


def test_a_model_that_no_way_reproduces_is_refused(llama: Path):
    model, calls = load_backbone(llama).model, []

    def drifting(module: Any, args: Any, output: Any) -> None:
        calls.append(1)
        output.last_hidden_state += 0.01 * len(calls)

    model.register_forward_hook(drifting)
    with pytest.raises(UnsupportedModel, match=r"llama cannot be run exactly \(flat: .* from eager; stacked: .*eager"):
        check(model, Tokenizer(tiny_tokenizer("llama")))


def test_a_model_that_counts_texts_by_their_first_position_runs_each_whole(llama: Path):
    model, ids = load_backbone(llama).model, texts()

    def strict(module: Any, args: Any, kwargs: Any, output: Any) -> None:
        at = kwargs.get("position_ids", torch.zeros(1, 1))[0]
        starts = torch.cat([at[:1], at[1:][at.diff() != 1]])
        output.last_hidden_state += 0.1 * (starts != 0).any()

    hook = model.register_forward_hook(strict, with_kwargs=True)
    backbone = check(model, Tokenizer(tiny_tokenizer("llama")))
    assert backbone.facts.way == "flat" and not backbone.facts.shares
    assert float(backbone.facts.checks["shared"].split()[0]) > 1e-3
    got = encode(backbone, prompt(), ids)
    hook.remove()
    again = check(model, Tokenizer(tiny_tokenizer("llama")))
    assert again.facts.shares and float(again.facts.checks["shared"].split()[0]) < 1e-5
    assert difference(got, encode(again, prompt(), ids)) < 1e-5
