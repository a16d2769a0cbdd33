"""Promise 2 (the same alone and in any batch): neighbours and methods that share the forward do not change a vector.

Neighbours of different lengths, with mask and padding tokens, and different methods in one forward.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.judge import EXACT, FORMULAS, METHODS, Judge, difference
from tests.zoo import write

from afterword import Encoder
from afterword.backbone.backbone import Backbone
from afterword.backbone.loading import load_backbone

KINDS = ["bert", "esm, token dropout", "gemma2", "llama, dynamic", "roberta", "t5"]
SHARING = ["classical mean", "classical last", "echo mean", "reba last", "reba mean", "ditto"]
SAME = 5e-6  # of the largest component: a neighbour that reaches a text moves it by 1e-3

ids = st.lists(st.one_of(st.integers(0, 9), st.integers(10, 260)), min_size=1, max_size=10)
masks = st.integers(5, 40).map(lambda n: [3] * n)  # [MASK] alone
long = st.integers(20, 60).map(lambda n: [20 + i % 200 for i in range(n)])


@lru_cache
def loaded(folder: Path, kind: str) -> Backbone:
    return load_backbone(write(kind, folder / kind))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("company")


@pytest.mark.parametrize("kind", KINDS)
@examples(6)
@given(text=ids, others=st.lists(st.one_of(ids, masks, long), min_size=1, max_size=6), name=st.sampled_from(SHARING))
def test_neighbours(models: Path, kind: str, text: list[int], others: list[list[int]], name: str) -> None:
    encoder = Encoder(loaded(models, kind), METHODS[name])
    alone = encoder.encode([text])
    assert difference(encoder.encode([*others, text])[-1:], alone) < SAME
    assert difference(encoder.encode([text, *others])[:1], alone) < SAME


@pytest.mark.parametrize("kind", KINDS)
@examples(4)
@given(
    texts=st.lists(st.one_of(ids, long), min_size=1, max_size=4),
    names=st.lists(st.sampled_from(SHARING), min_size=2, max_size=4, unique=True),
)
def test_other_methods_of_the_same_forward(models: Path, kind: str, texts: list[list[int]], names: list[str]) -> None:
    backbone = loaded(models, kind)
    methods = {name: METHODS[name] for name in names}
    together = Encoder(backbone, METHODS[names[0]]).encode_many(texts, methods)
    for name, method in methods.items():
        assert difference(together[name], Encoder(backbone, method).encode(texts)) < SAME, name


@pytest.mark.parametrize("kind", ["llama, dynamic", "phi3, longrope"])
def test_frequencies_by_length_are_not_shared(models: Path, kind: str) -> None:
    """One copy is under the limit of 24, two are over it."""
    backbone, texts = loaded(models, kind), [[20 + i for i in range(n)] for n in (5, 18, 20, 30)]
    own = Judge(models / kind)
    methods = {name: METHODS[name] for name in ("classical mean", "echo mean")}
    together = Encoder(backbone, METHODS["echo mean"]).encode_many(texts, methods)
    for name in methods:
        assert difference(together[name], np.stack([FORMULAS[name](own, t).numpy() for t in texts])) < EXACT, name
