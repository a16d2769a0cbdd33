"""The axis names are checked wherever tensors pass."""

import jaxtyping
import pytest
import torch

from afterword.backbone.attention_views import ScoreView
from afterword.shapes import Rows, States


def test_a_tensor_of_another_shape_is_refused() -> None:
    assert isinstance(torch.zeros(3, 2), States)
    assert not isinstance(torch.zeros(3), States)
    assert not isinstance(torch.zeros(3, 2, 4, dtype=torch.long), Rows)


def test_the_hook_is_on() -> None:
    q, k = torch.zeros(2, 4, 5, 8), torch.zeros(2, 2, 6, 8)  # five queries, six keys
    with pytest.raises(jaxtyping.TypeCheckError):
        ScoreView(0, 0, True, q, k, 1.0)
