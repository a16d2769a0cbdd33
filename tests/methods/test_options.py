"""Checks of options: the value, its name and what would work."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from afterword.errors import MethodError
from afterword.methods import classical, ensemble, prompt, scsp, token_prepending
from afterword.post import RemoveTop, Whiten
from afterword.post.embed_filter import EmbedFilter


@pytest.mark.parametrize(
    ("call", "name", "fix"),
    [
        (lambda x: classical(temperature=x), "temperature", "a number"),
        (lambda x: prompt(chat=[x]), "chat", "true or false or a string"),
        (scsp, "alpha", "a number"),
        (lambda x: ensemble("ck", weights=[1, x]), "weights", "a list of numbers or none"),
        (lambda x: Whiten(epsilon=x), "epsilon", "a number"),
        (lambda x: RemoveTop(1, centre=x), "centre", "true or false"),
    ],
)
def test_a_value_of_another_type_is_named(call: Callable[[Any], object], name: str, fix: str) -> None:
    """A string is neither a number nor true."""
    for value in ("no", (2.0, 1.0)):
        with pytest.raises(MethodError) as caught:
            call(value)
        assert f"{name}=" in str(caught.value) and fix in str(caught.value)


def test_numbers_of_numpy_and_torch_are_numbers() -> None:
    assert (
        classical(temperature=torch.tensor(0.5)) == classical(temperature=np.float64(0.5)) == classical(temperature=0.5)
    )
    half = ensemble("ck", weights=np.array([1, 0.5], np.float32))
    assert half == ensemble("ck", weights=[np.float32(1), 0.5]) and half.weights == (1.0, 0.5)
    assert RemoveTop(np.int64(2), centre=np.False_) == RemoveTop(2, centre=False)
    assert EmbedFilter(keep=np.float32(0.5)) == EmbedFilter(keep=0.5) and token_prepending(start=np.int64(2)).sight


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: ensemble("ck", weights=[1e308, 1e308]), "a weight is 1e.308: give a number above 0, 1e-30 to 1e30"),
        (lambda: ensemble("ck", weights=[1, 1e-300]), "a weight is 1e-300"),
        (lambda: classical(temperature=1e-300), "temperature=1e-300: give a number from 0.001 to 1000"),
        (lambda: classical(temperature=1e300), "temperature=1e.300"),
        (lambda: classical(temperature=float("nan")), "temperature=nan"),
    ],
)
def test_numbers_that_float32_cannot_compute_with_are_refused(call: Callable[[], object], said: str) -> None:
    with pytest.raises(MethodError, match=said):
        call()
