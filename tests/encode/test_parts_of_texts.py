"""Words, weights and attention of one text, by `Encoder`'s own methods."""

from __future__ import annotations

import numpy as np
import pytest
from tests.tiny import tiny

from afterword import Encoder, reba
from afterword.backbone.loading import load_backbone


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory):
    return load_backbone(tiny("llama", tmp_path_factory.mktemp("llama")))


def test_looking_into_a_text(llama) -> None:
    tokens, weights = Encoder(llama, reba(2)).weights("ab")
    assert len(tokens) == len(weights) == 5
    assert weights[0] == weights[1] == 0 and (weights[2:] > 0).all()
    tokens, matrix = Encoder(llama, reba(2, triangle="full")).attention("ab")
    assert matrix.shape == (5, 5) and np.allclose(matrix, matrix.T)
    assert np.allclose(weights[2:], matrix[2, 2:])
