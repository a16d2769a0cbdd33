"""Whether an encoder and a SentenceTransformer give the same, every way of encoding."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from afterword import Encoder
from afterword.post import Dense

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

TEXTS = ["The bank of the river.", "A bank for my money and for the money of all the others!", "dog", "a b", "é 学校"]
LONG = [*TEXTS, "one two three four five six seven eight nine ten eleven twelve " * 3]
PROMPTS = {"query": "find: ", "document": "read this: ", "other": "{curly} "}
DENSE = Dense(torch.randn(24, 64, generator=torch.Generator().manual_seed(1)) / 8, torch.ones(24), "Tanh")


def theirs(folder: Path, **options: object) -> SentenceTransformer:
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(folder), device="cpu", **options)


def close(ours: np.ndarray, other: np.ndarray, tolerance: float = 1e-6) -> bool:
    """Within a tolerance of the largest value."""
    return ours.shape == other.shape and bool(abs(ours - other).max() <= tolerance * max(1.0, abs(other).max()))


def agree(ours: Encoder, other: SentenceTransformer, texts: list[str], tolerance: float = 1e-6) -> bool:
    """Whether all ways of encoding texts give the same, and two of them for one text."""
    ways: list[tuple[str, dict[str, str]]] = [("encode", {})]
    if all(method.layout.chunk is None for method in ours.method.members):  # a text in pieces takes no prompt
        named = [{"prompt_name": name} for name in PROMPTS if name in (ours.prompts or {})]
        ways += [("encode_query", {}), ("encode_document", {})]
        ways += [("encode", options) for options in ({"prompt": "so: "}, *named)]
    pairs = [
        (getattr(ours, way)(given, on_long="ignore", **options), getattr(other, way)(given, **options))
        for number, (way, options) in enumerate(ways)
        for given in ((texts, texts[0]) if number < 2 else (texts,))
    ]
    return all(close(a, b, tolerance) for a, b in pairs)
