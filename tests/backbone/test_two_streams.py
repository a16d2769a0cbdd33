from pathlib import Path
from typing import Any

import pytest
import torch
from tests.eager import Eager
from tests.families import batch_of, by_text, texts
from tests.tiny import tiny, tiny_tokenizer
from torch import Tensor
from transformers import AutoConfig, AutoModel

from afterword.backbone.attention import NAME
from afterword.backbone.attention_masks import Plan
from afterword.backbone.backbone import Backbone
from afterword.backbone.bidirectional import Sight
from afterword.backbone.facts import LAST
from afterword.backbone.loading import load_backbone
from afterword.backbone.self_check import check
from afterword.backbone.two_streams import coupled
from afterword.errors import UnsupportedModel
from afterword.text.tokenizer import Tokenizer


def by_hand(eager: Eager, ids: list[int], last: int, couple: str) -> Tensor:
    """Equation 5 with a Llama taken apart: every layer called by itself, with eager masks."""
    model = eager.model
    n, h = len(ids), model.embed_tokens(torch.tensor([ids]))
    rope = model.rotary_emb(h, torch.arange(n)[None])
    closed = torch.full((n, n), float("-inf")).triu(1)[None, None]
    first = len(model.layers) - last

    def through(h: Tensor, layers: Any, mask: Tensor) -> Tensor:
        for layer in layers:
            h = layer(h, attention_mask=mask, position_embeddings=rope)
        return h

    below = through(h, model.layers[:first], closed)
    causal = below if couple == "angle031" else through(below, model.layers[first:], closed)
    start = below if couple in ("add", "add_postnorm") else h
    both = through(start, model.layers[first:], torch.zeros_like(closed))
    return model.norm(causal) + model.norm(both) if couple == "add_postnorm" else model.norm(causal + both)


@pytest.mark.parametrize("last", [1, 2])
@pytest.mark.parametrize("couple", ["add", "add_postnorm", "add_embedding", "angle031"])
def test_two_streams_are_equation_5(couple: Any, last: int, tmp_path: Path):
    backbone, eager = load_backbone(tiny("llama", tmp_path)), Eager(tmp_path)
    batch = batch_of(texts())
    with torch.no_grad():
        got = by_text(batch, backbone.forward(batch, sight=Sight(last, couple=couple)).states[LAST])
        for ids, state in zip(texts(), got, strict=True):
            wanted = by_hand(eager, ids, last, couple)[0]
            assert (state - wanted).abs().max() < 1e-5 * wanted.abs().max()


def test_nothing_of_a_second_stream_stays_behind(tmp_path: Path):
    backbone = load_backbone(tiny("llama", tmp_path))
    batch = batch_of(texts())
    hooks = lambda: sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in backbone.model.modules())  # noqa: E731
    with torch.no_grad():
        before, count = backbone.forward(batch).states[LAST], hooks()
        backbone.forward(batch, sight=Sight(1, couple="add"))
        with pytest.raises(ZeroDivisionError), coupled(backbone.stack, Sight(1, couple="add"), Plan(())):
            _ = 1 / 0
        assert hooks() == count
        assert torch.equal(backbone.forward(batch).states[LAST], before)


GEMMA3N: dict[str, Any] = {
    "vocab_size": 300, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 6, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "sliding_window": 6, "num_kv_shared_layers": 2, "laurel_rank": 4,
    "layer_types": ["sliding_attention", "full_attention"] * 3, "hidden_size_per_layer_input": 8,
    "vocab_size_per_layer_input": 300, "altup_num_inputs": 2, "activation_sparsity_pattern": [0.0] * 6,
}  # fmt: skip
"""Its last two layers borrow the keys and values of layers 2 and 3; between layers there are two states a token."""


@pytest.fixture(scope="module")
def gemma3n() -> Backbone:
    torch.manual_seed(0)
    model = AutoModel.from_config(AutoConfig.for_model("gemma3n_text", **GEMMA3N), attn_implementation=NAME).eval()
    with torch.no_grad():
        for p in model.parameters():
            if p.ndim >= 2:
                p.normal_(std=1.2 * p.shape[-1] ** -0.5)
    return check(model, Tokenizer(tiny_tokenizer("llama")))


def gemma3n_by_hand(model: Any, ids: list[int], last: int) -> Tensor:
    """Equation 5 with Gemma 3n taken apart: each stream keeps the keys and values that its later layers borrow."""
    n, first, config = len(ids), 6 - last, model.config
    embedded, at = model.embed_tokens(torch.tensor([ids])), torch.arange(n)[None]
    own = model.project_per_layer_inputs(embedded, model.get_per_layer_inputs(torch.tensor([ids])))
    rope = {kind: model.rotary_emb(embedded, at, kind) for kind in set(config.layer_types)}
    lower = torch.ones(n, n, dtype=torch.bool).tril()

    def magnitude(x: Tensor) -> Tensor:
        return x.square().mean(-1, keepdim=True).sqrt()

    def aligned(states: list[Tensor], projections: Any) -> Tensor:
        made = [p(s) for p, s in zip(projections, states[1:], strict=True)]
        return torch.stack([states[0], *(m * magnitude(states[0]) / magnitude(m) for m in made)])

    def through(h: Tensor, layers: range, shelf: dict[str, Any], both_ways: bool) -> Tensor:
        for i in layers:
            seen = lower.triu(-5) if config.layer_types[i] == "sliding_attention" else lower
            mask = torch.zeros(n, n).masked_fill(~(seen | seen.mT if both_ways else seen), float("-inf"))[None, None]
            h = model.layers[i](
                h, rope[config.layer_types[i]], own[:, :, i], shared_kv_states=shelf, attention_mask=mask
            )
        return h

    shelf: dict[str, Any] = {}
    below = through(aligned([embedded] * 2, model.altup_projections), range(first), shelf, False)
    both = through(below, range(first, 6), dict(shelf), True)
    total = through(below, range(first, 6), shelf, False) + both
    return model.norm(aligned(list(total), model.altup_unembed_projections).mean(0))[0]  # type: ignore[no-any-return]


@pytest.mark.parametrize("last", [2, 4, 6])
def test_streams_do_not_borrow_each_others_keys(last: int, gemma3n: Backbone):
    batch, model = batch_of(texts()), gemma3n.model
    with torch.no_grad():
        got = by_text(batch, gemma3n.forward(batch, sight=Sight(last, couple="add")).states[LAST])
        model.set_attn_implementation("eager")
        for ids, state in zip(texts(), got, strict=True):
            wanted = gemma3n_by_hand(model, ids, last)
            assert (state - wanted).abs().max() < 1e-5 * wanted.abs().max()


@pytest.mark.parametrize("layer", [0, 1, -2, "normed:2"])
def test_states_that_are_no_vectors_of_tokens_are_refused(layer: Any, gemma3n: Backbone):
    with (
        torch.no_grad(),
        pytest.raises(UnsupportedModel, match=r"has states of shape \(2, 1, .*: use its"),
    ):
        gemma3n.forward(batch_of(texts()), frozenset({layer}))


def test_a_sum_of_normed_streams_is_refused_where_the_norm_is_not_behind_the_layers(gemma3n: Backbone):
    with torch.no_grad(), pytest.raises(UnsupportedModel, match="use couple='add'"):
        gemma3n.forward(batch_of(texts()), sight=Sight(2, couple="add_postnorm"))
