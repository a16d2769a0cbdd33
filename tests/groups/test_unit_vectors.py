"""Vectors are checked, and scaled to length 1."""

import numpy as np
import pytest

from afterword.errors import InputError
from afterword.groups.unit_vectors import checked, squares, unit


@pytest.mark.parametrize("wrong", [np.nan, np.inf, 1e39])
def test_a_row_that_is_not_finite_is_named(wrong: float):
    vectors = np.ones((5000, 2))
    vectors[4500, 1] = wrong
    with pytest.raises(InputError, match="row 4500 of the vectors is not finite"):
        checked(vectors)


def test_vectors_are_a_table():
    with pytest.raises(InputError, match=r"have the shape \(n, D\), not \(3,\)"):
        checked(np.ones(3))


def test_lengths_of_any_size():
    vectors = checked(np.array([[3, 4], [3e30, 4e30], [3e-30, 4e-30], [0, 0]]))
    assert np.allclose(unit(vectors), [[0.6, 0.8]] * 3 + [[0, 0]], atol=1e-7)
    assert squares(checked([[3, 4]])).tolist() == [25.0]
