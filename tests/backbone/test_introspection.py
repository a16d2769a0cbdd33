from pathlib import Path
from typing import Any

import pytest
import torch
from tests.tiny import FAMILIES, tiny, tiny_config, tiny_model

from afterword.backbone import introspection
from afterword.backbone.loading import load_backbone
from afterword.errors import UnsupportedModel


@pytest.mark.parametrize("kind", FAMILIES)
def test_layers_are_counted(kind: str):
    config = tiny_config(kind)
    assert introspection.count_layers(config) == (4 if kind == "gpt_neo" else 3)
    assert introspection.count_attention(config) == {"gpt_neo": 4, "lfm2": 2, "mamba": 0}.get(kind, 3)


@pytest.mark.parametrize(("kind", "offset"), [("bert", 0), ("gpt2", 0), ("roberta", 2), ("xlm-roberta", 2), ("opt", 0)])
def test_positions_begin_where_the_table_says(kind: str, offset: int):
    assert introspection.position_offset(tiny_model(kind)) == offset


@pytest.mark.parametrize(
    ("kind", "limit"),
    [("gpt2", 512), ("roberta", 512), ("t5", None), ("mpt", 512), ("llama dynamic", 96), ("mamba", None)],
)
def test_positions_end(kind: str, limit: int | None):
    assert introspection.position_limit(tiny_config(kind), introspection.position_offset(tiny_model(kind))) == limit


@pytest.mark.parametrize(
    ("kind", "width"), [("llama", None), ("mistral", 6), ("modernbert", 4), ("llama4_text", 6), ("gpt_neo", 6)]
)
def test_the_shortest_window(kind: str, width: int | None):
    """ModernBERT's window of 8 reaches 4 to each side."""
    assert introspection.window(tiny_config(kind)) == width


@pytest.mark.parametrize(
    ("kind", "split"),
    [("llama", (None, False)), ("phi3", (24, False)), ("llama dynamic", (24, True)), ("gemma3_text", (None, False)),
     ("gpt2", (None, False)), ("modernbert", (None, False))],
)  # fmt: skip
def test_rotary_frequencies_that_depend_on_the_length(kind: str, split: tuple[Any, bool]):
    assert introspection.rotary_split(tiny_config(kind)) == split


def test_dynamic_frequencies_are_forgotten():
    model: Any = tiny_model("llama dynamic")
    fresh = model.rotary_emb.inv_freq.clone()
    with torch.no_grad():
        model(input_ids=torch.full((1, 60), 9))
    assert not torch.equal(model.rotary_emb.inv_freq, fresh)
    introspection.forget(model)
    assert torch.equal(model.rotary_emb.inv_freq, fresh) and model.rotary_emb.max_seq_len_cached == 24
    with torch.no_grad():  # and another length is reckoned as if it were the first
        model(input_ids=torch.full((1, 40), 9))
    other: Any = tiny_model("llama dynamic")
    with torch.no_grad():
        other(input_ids=torch.full((1, 40), 9))
    assert torch.equal(model.rotary_emb.inv_freq, other.rotary_emb.inv_freq)


@pytest.mark.parametrize(
    ("kind", "norm"), [("llama", "norm"), ("gpt2", "ln_f"), ("gpt_neox", "final_layer_norm"), ("gemma2", "norm")]
)
def test_the_stack_is_the_layers_and_the_norm_behind_them(kind: str, norm: str, tmp_path: Path):
    backbone = load_backbone(tiny(kind, tmp_path))
    stack, model = backbone.stack, backbone.model
    assert len(stack.layers) == 3 and stack.norm is getattr(model, norm)
    assert all(a in layer.modules() for a, layer in zip(backbone.modules, stack.layers, strict=True))
    assert model.config._attn_implementation == "afterword"  # type: ignore[union-attr]


def test_layers_that_are_one_module_cannot_be_taken_apart(tmp_path: Path):
    with pytest.raises(UnsupportedModel, match="AlbertModel"):
        _ = load_backbone(tiny("albert", tmp_path)).stack
