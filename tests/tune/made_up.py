"""Small models and pairs with made-up scores."""

from pathlib import Path

import numpy as np
from tests.tiny import tiny

from afterword import Encoder, classical
from afterword.post import RemoveTop, Whiten
from afterword.tasks.pairs import ScoredPairs
from afterword.tune import Grid, Tuned

WORDS = "the cat sat on a mat while dogs ran over hills and rivers near towns".split()
SMALL = {"num_hidden_layers": 2, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32}
GPT_SMALL = {"n_layer": 2, "n_embd": 16, "n_head": 2}
SPECS = {
    "bert": (SMALL, Grid(("promptbert",), (1, 2), heads="all")),
    "gpt2": (GPT_SMALL, Grid(("eol",), (1, 2), (1, 2), posts=(Whiten(), Whiten(5), RemoveTop(1)))),
    "llama": ({**SMALL, "num_key_value_heads": 1, "head_dim": 8}, Grid()),
}


def made_up(pairs: int = 44, seed: int = 0) -> ScoredPairs:
    random = np.random.default_rng(seed)

    def text() -> str:
        return " ".join(random.choice(WORDS, random.integers(4, 9)))

    left = tuple(text() for _ in range(pairs))
    right = tuple(text() if random.random() < 0.7 else a + " too" for a in left)
    return ScoredPairs(left, right, random.normal(size=pairs), ("",) * pairs)


def load(kind: str, folder: Path, method=None, **options) -> Encoder:
    return Encoder.load(tiny(kind, folder, **SPECS[kind][0]), method or classical(), dtype="float64", **options)


def slow_vectors(encoder: Encoder, pairs: ScoredPairs, tuned: Tuned) -> dict[int, np.ndarray]:
    """Per recipe, the vectors (2, n, D) of its method, every method run by itself where its layout is its own."""
    methods = {r.spec: r.method for r in tuned.recipes}
    every = encoder.encode_many([*pairs.left, *pairs.right], methods)
    return {i: every[r.spec].reshape(2, len(pairs.gold), -1) for i, r in enumerate(tuned.recipes)}
