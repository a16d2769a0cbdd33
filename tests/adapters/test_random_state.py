import random

import numpy as np
import pytest
import torch

from afterword.adapters.mteb_official import untouched_seeds


def drawn() -> tuple[float, float, float]:
    return random.random(), float(np.random.rand()), float(torch.rand(()))  # noqa: NPY002


def seed(number: int) -> None:
    random.seed(number)
    np.random.seed(number)  # noqa: NPY002
    torch.manual_seed(number)


def test_the_generators_go_on_as_if_nothing_had_seeded_them():
    with untouched_seeds():
        seed(1)
        expected = drawn(), drawn()
        seed(1)
        first = drawn()
        with untouched_seeds():
            seed(2)
            assert drawn() != expected[1]
        assert (first, drawn()) == expected


def test_also_after_an_error():
    before = random.getstate()

    def fail() -> None:
        with untouched_seeds():
            seed(3)
            raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011
        fail()
    assert random.getstate() == before
