"""Looking into one text."""

import numpy as np
import pytest
from tests.tiny import tiny

from afterword import Encoder, classical, ditto, reba
from afterword.backbone.loading import load_backbone
from afterword.errors import MethodError


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory):
    return load_backbone(tiny("bert", tmp_path_factory.mktemp("look")))


def test_weights_times_states_is_the_vector(own) -> None:
    states = Encoder(own, classical()).encode_words([[20, 30, 40]], [[(i, i + 1) for i in range(3)]])[0]
    tokens, weights = Encoder(own, classical(pool_special_tokens=False)).weights([20, 30, 40])
    assert len(tokens) == 5 and weights.tolist() == pytest.approx([0, 1 / 3, 1 / 3, 1 / 3, 0])
    vector = Encoder(own, classical(pool_special_tokens=False)).encode([[20, 30, 40]])[0]
    assert np.allclose(weights[1:4] @ states, vector, atol=1e-6)


def test_chunks_follow_each_other(own) -> None:
    tokens, weights = Encoder(own, reba(2, "mean", chunk=2)).weights([20, 30, 40])
    assert len(tokens) == len(weights) == (2 + 4) + (2 + 2)


def test_only_reba_has_a_matrix(own) -> None:
    assert Encoder(own, reba(triangle="full")).attention([20, 30])[1].shape == (6, 6)
    with pytest.raises(MethodError, match=r"use reba\(\)"):
        Encoder(own, ditto("1-1")).attention([20, 30])
