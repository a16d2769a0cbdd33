"""Loading a half-precision model: the highest resident memory of the self-check, of that of its weights.

python benchmarks/load_memory.py
"""

import gc
from pathlib import Path

import torch
from alone import resident
from measure import Row, main
from transformers import AutoModel, LlamaConfig

from afterword import Encoder
from afterword.backbone.self_check import check


def measure(quick: bool) -> list[Row]:
    width, layers = (512, 24) if quick else (1024, 24)
    config = LlamaConfig(
        hidden_size=width, intermediate_size=3 * width, num_hidden_layers=layers, num_attention_heads=16,
        num_key_value_heads=4, vocab_size=32_000, max_position_embeddings=4096,
    )  # fmt: skip
    tokenizer = Encoder.load("afterword-mini").backbone.tokenizer
    model = AutoModel.from_config(config, dtype=torch.bfloat16, attn_implementation="afterword").eval()
    weights = sum(p.nbytes for p in model.parameters())
    gc.collect()
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    check(model, tokenizer)
    above = resident("VmHWM") - before
    what = f"self-check of a Llama of {layers} layers in bfloat16, peak memory / its weights"
    return [Row(what, 1 + above / weights, "<= 1.2", parts={"weights": weights, "above": above})]


if __name__ == "__main__":
    main("load_memory", measure)
