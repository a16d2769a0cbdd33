"""Where W_O is found in families that build attention in other ways."""

import re

import pytest
import torch
from tests.tiny import tiny_model, tiny_tokenizer

from afterword import Encoder, classical
from afterword.backbone.attention_blocks import few_tokens
from afterword.backbone.self_check import check
from afterword.errors import AttentionNotSeen
from afterword.text.tokenizer import Tokenizer

BLOCKS = {
    "gpt2": ("flat", "h.#.attn.c_proj"),
    "gpt_neox": ("flat", "layers.#.attention.dense"),  # queries, keys and values in one matrix; a parallel block
    "gemma2": ("flat", "layers.#.self_attn.o_proj"),  # a norm behind it
    "bert": ("flat", "encoder.layer.#.attention.output.dense"),  # behind the module that attends
    "albert": ("flat", "encoder.albert_layer_groups.#.albert_layers.#.attention.dense"),  # one module for all layers
    "t5": ("stacked", "encoder.block.#.layer.#.SelfAttention.o"),
    "lfm2": ("stacked", "layers.#.self_attn.out_proj"),  # some layers have no attention
    "bloom": ("eager", "h.#.self_attention.dense"),
    "deberta-v2": ("eager", "encoder.layer.#.attention.output.dense"),
}


def loaded(kind: str):
    model = tiny_model(kind)
    if kind not in ("bloom", "deberta-v2"):
        model.set_attn_implementation("afterword")
    return check(model, Tokenizer(tiny_tokenizer(kind)))


@pytest.mark.parametrize(("kind", "threads"), [*((kind, 1) for kind in BLOCKS), ("bert", 2), ("gpt2", 4)])
def test_the_names(kind: str, threads: int) -> None:
    torch.set_num_threads(threads)
    own = loaded(kind)
    Encoder(own, classical(states="attention:all"))
    assert len(own.known.blocks) == own.facts.layers
    assert (own.facts.way, *{re.sub(r"\d+", "#", name) for name in own.known.blocks}) == BLOCKS[kind]


def test_a_model_without_attention() -> None:
    own = loaded("mamba")
    assert few_tokens(own).texts == 1
    for kind in ("attention:all", "values:0"):
        with pytest.raises((AttentionNotSeen, Exception), match="no layer with attention, use states='layer:k'"):
            Encoder(own, classical(states=kind))
