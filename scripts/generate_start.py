"""Write the tables of docs/start.md: parameters and memory, computed from each model's configuration.

python scripts/generate_start.py [--check]
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import CONFIG_MAPPING, AutoModel

PAGE = Path(__file__).resolve().parent.parent / "docs" / "start.md"
BLOCK = re.compile(r"(<!-- (\w+) -->\n).*?(<!-- end -->)", flags=re.S)


@dataclass(frozen=True)
class Start:
    """A model to start with: its name on the hub, its type and configuration, and what to know about it."""

    name: str
    type: str
    config: dict[str, Any]
    languages: str
    tokens: int
    licence: str
    method: str


def bert(layers: int, width: int, heads: int, vocabulary: int) -> dict[str, Any]:
    """A BERT whose feed-forward layers are four times as wide."""
    return {
        "num_hidden_layers": layers, "hidden_size": width, "num_attention_heads": heads,
        "intermediate_size": 4 * width, "vocab_size": vocabulary,
    }  # fmt: skip


def xlm(layers: int, width: int, heads: int, positions: int = 514) -> dict[str, Any]:
    """An XLM-RoBERTa."""
    return {**bert(layers, width, heads, 250002), "max_position_embeddings": positions, "type_vocab_size": 1}


def decoder(layers: int, width: int, heads: int, keys: int, wide: int, vocabulary: int, **more: Any) -> dict[str, Any]:
    """A decoder with grouped keys and values."""
    return {
        "num_hidden_layers": layers, "hidden_size": width, "num_attention_heads": heads, "num_key_value_heads": keys,
        "intermediate_size": wide, "vocab_size": vocabulary, **more,
    }  # fmt: skip


OWN = "its own"
RAW_ENCODER = "`classical:states=first_last`, `ditto`"
RAW_DECODER = "`reba:pool=mean`, `echo`, `prompt`"
ROBERTA = {"vocab_size": 50265, "max_position_embeddings": 514, "type_vocab_size": 1}
MODELS = {
    "trained": (
        Start("sentence-transformers/all-MiniLM-L6-v2", "bert", bert(6, 384, 12, 30522),
              "English", 256, "Apache-2.0", OWN),
        Start("BAAI/bge-small-en-v1.5", "bert", bert(12, 384, 12, 30522), "English", 512, "MIT", OWN),
        Start("sentence-transformers/all-mpnet-base-v2", "mpnet", {}, "English", 384, "Apache-2.0", OWN),
        Start("BAAI/bge-base-en-v1.5", "bert", {}, "English", 512, "MIT", OWN),
        Start("BAAI/bge-small-zh-v1.5", "bert", bert(4, 512, 8, 21128), "Chinese", 512, "MIT", OWN),
        Start("sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2", "bert", bert(12, 384, 12, 250037),
              "about 50", 128, "Apache-2.0", OWN),
        Start("intfloat/multilingual-e5-small", "bert", bert(12, 384, 12, 250037), "about 100", 512, "MIT", OWN),
        Start("intfloat/multilingual-e5-base", "xlm-roberta", xlm(12, 768, 12), "about 100", 512, "MIT", OWN),
        Start("BAAI/bge-m3", "xlm-roberta", xlm(24, 1024, 16, 8194), "about 100", 8192, "MIT", OWN),
        Start("Qwen/Qwen3-Embedding-0.6B", "qwen3", decoder(28, 1024, 16, 8, 3072, 151669, head_dim=128),
              "about 100", 32768, "Apache-2.0", OWN),
    ),
    "raw": (
        Start("google-bert/bert-base-uncased", "bert", {}, "English", 512, "Apache-2.0", RAW_ENCODER),
        Start("FacebookAI/roberta-base", "roberta", ROBERTA, "English", 512, "MIT", RAW_ENCODER),
        Start("answerdotai/ModernBERT-base", "modernbert", {}, "English", 8192, "Apache-2.0", RAW_ENCODER),
        Start("openai-community/gpt2", "gpt2", {}, "English", 1024, "MIT", RAW_DECODER),
        Start("Qwen/Qwen2.5-0.5B", "qwen2", decoder(24, 896, 14, 2, 4864, 151936),
              "about 30", 32768, "Apache-2.0", RAW_DECODER),
        Start("meta-llama/Llama-3.2-1B", "llama", decoder(16, 2048, 32, 8, 8192, 128256),
              "8", 131072, "Llama 3.2, on request", RAW_DECODER),
        Start("mistralai/Mistral-7B-v0.1", "mistral", decoder(32, 4096, 32, 8, 14336, 32000),
              "English", 32768, "Apache-2.0", RAW_DECODER),
    ),
}  # fmt: skip


def parameters(start: Start) -> tuple[int, int]:
    """How many parameters the base model has, without a language-modelling head, and the width of its vectors."""
    config = CONFIG_MAPPING[start.type](**start.config)
    with torch.device("meta"):
        model = AutoModel.from_config(config)
    return sum(p.numel() for p in model.parameters()), config.hidden_size


def size(count: float) -> str:
    """Bytes in MB or GB.

    >>> size(90_852_864), size(2_270_000_000)
    ('91 MB', '2.3 GB')
    """
    return f"{count / 1e6:.0f} MB" if count < 1e9 else f"{count / 1e9:.1f} GB"


def table(models: tuple[Start, ...]) -> str:
    """A markdown table, a row per model."""
    lines = [
        "| model | languages | parameters | vector | tokens | float32 | bfloat16 | licence | method |",
        "|---|---|--:|--:|--:|--:|--:|---|---|",
    ]
    for start in models:
        count, width = parameters(start)
        lines.append(
            f"| {start.name} | {start.languages} | {count / 1e6:.0f} M | {width} | {start.tokens} | {size(4 * count)} "
            f"| {size(2 * count)} | {start.licence} | {start.method} |"
        )
    return "\n".join(lines) + "\n"


def renewed(page: str) -> str:
    """The page with every table as it is computed now."""
    return BLOCK.sub(lambda found: found[1] + table(MODELS[found[2]]) + found[3], page)


if __name__ == "__main__":
    before = PAGE.read_text("utf-8")
    now = renewed(before)
    if "--check" in sys.argv:
        sys.exit(f"{PAGE.name} is out of date: run scripts/generate_start.py" if now != before else 0)
    PAGE.write_text(now, "utf-8")
