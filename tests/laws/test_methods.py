"""Promise 1 (right): equations between methods that hold on any model."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.tiny import tiny

from afterword import Encoder, bellm, classical, prompt, reba
from afterword.backbone.backbone import Backbone
from afterword.backbone.bidirectional import Sight
from afterword.backbone.loading import load_backbone
from afterword.text.batch import lay
from afterword.text.segments import Segment, TokenizedText

KINDS = ["gpt2", "llama", "mistral", "gemma2"]
ids = st.lists(st.integers(8, 290), min_size=2, max_size=14)


@lru_cache
def backbone(folder: Path, kind: str):
    return load_backbone(tiny(kind, folder / kind))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("laws")


def states(own, text: list[int], both: Sight | None = None, layer: int | str = "last") -> np.ndarray:
    batch = lay([TokenizedText((Segment(text, ((0, len(text)),)),))])
    with torch.no_grad():
        return own.forward(batch, frozenset({layer}), both).states[layer].numpy()


@pytest.mark.parametrize("kind", KINDS)
@examples(25)
@given(text=ids)
def test_reba_1_last_is_parallel_to_classical_last(models: Path, kind: str, text: list[int]) -> None:
    """Nothing stands behind the last token, so that e_n is one weight times v_n."""
    own = backbone(models, kind)
    plain = {"add_special_tokens": False}
    one = Encoder(own, reba(1, **plain)).encode([text])[0]
    other = Encoder(own, classical("last", **plain)).encode([text])[0]
    assert one @ other / (np.linalg.norm(one) * np.linalg.norm(other)) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@examples(25)
@given(text=ids)
def test_bellm_with_one_layer_and_the_last_token_is_the_causal_model(models: Path, kind: str, text: list[int]) -> None:
    own = backbone(models, kind)
    with pytest.warns(UserWarning, match="equals the causal model"):
        seeing = Encoder(own, bellm(last=1, pool="last")).encode([text])
    causal = Encoder(own, prompt("bellm")).encode([text])
    assert np.abs(seeing - causal).max() <= 2e-6 * np.abs(causal).max()
    whole = Backbone(own.model, own.tokenizer, replace(own.facts, shares=False), own.modules)
    assert (seeing == Encoder(whole, prompt("bellm")).encode([text])).all(), "the template is in every text in both"


@pytest.mark.parametrize("kind", KINDS)
@examples(25)
@given(text=ids, j=st.integers(1, 13), new=st.integers(8, 290))
def test_only_layers_that_see_both_ways_see_later_tokens(
    models: Path, kind: str, text: list[int], j: int, new: int
) -> None:
    """Another token at j moves no state before j, until a layer sees both ways; from there on its neighbour's."""
    own, j = backbone(models, kind), 1 + (j - 1) % (len(text) - 1)
    other = [*text[:j], new if new != text[j] else 8 + (new - 7) % 283, *text[j + 1 :]]
    assert (states(own, text)[:j] == states(own, other)[:j]).all()
    last_two = Sight(last=2)
    before = [states(own, t, last_two, layer=1)[:j] for t in (text, other)]
    assert (before[0] == before[1]).all()
    after = [states(own, t, last_two)[j - 1] for t in (text, other)]
    assert np.abs(after[0] - after[1]).max() > 0


@pytest.mark.parametrize("kind", KINDS)
@examples(25)
@given(text=ids, k=st.integers(2, 4))
def test_a_first_copy_does_not_know_of_the_second(models: Path, kind: str, text: list[int], k: int) -> None:
    """What lets several methods share a forward."""
    own = backbone(models, kind)
    once, often = states(own, text), states(own, text * k)
    assert np.abs(once - often[: len(text)]).max() <= 2e-6 * np.abs(often).max()
