import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from afterword.errors import InputError
from afterword.post import Moments


def vectors(n: int, d: int, shift: float = 0.0) -> torch.Tensor:
    g = torch.Generator().manual_seed(n)
    return torch.randn(n, d, generator=g, dtype=torch.float64) @ torch.randn(d, d, generator=g).double() + shift


@given(cuts=st.lists(st.integers(0, 50), max_size=4))
def test_however_they_come_the_moments_are_numpys(cuts: list[int]):
    x = vectors(50, 4, shift=100)
    moments = Moments()
    for start, end in zip([0, *sorted(cuts)], [*sorted(cuts), 50], strict=True):
        moments.add(x[start:end])
    assert moments.count == 50
    np.testing.assert_allclose(moments.mean, x.mean(0), rtol=1e-14)
    np.testing.assert_allclose(moments.covariance, np.cov(x.T), rtol=1e-11, atol=1e-11)


def test_a_large_mean_costs_no_precision():
    """The sum of squares less the square of the sum would keep no digit here."""
    x = vectors(1000, 3)
    moments = Moments().add([x[i : i + 10] + 1e7 for i in range(0, 1000, 10)])
    np.testing.assert_allclose(moments.covariance, np.cov(x.T), rtol=1e-7)


def test_principal_directions_are_those_of_an_svd():
    x = vectors(40, 6)
    values, rows = Moments().add(x).principal()
    _, s, right = np.linalg.svd((x - x.mean(0)).numpy(), full_matrices=False)
    np.testing.assert_allclose(values, s**2 / 39, rtol=1e-10)
    np.testing.assert_allclose(rows.abs(), abs(right), atol=1e-10)
    assert (rows.gather(1, rows.abs().argmax(1, keepdim=True)) > 0).all()


def test_directions_without_variance_are_left_out():
    x = torch.cat([vectors(30, 3), torch.zeros(30, 2)], 1)
    assert len(Moments().add(x).principal()[0]) == 3
    assert len(Moments().add(vectors(4, 9)).principal()[0]) == 3
    assert len(Moments().add(torch.ones(5, 4)).principal()[0]) == 0


def test_what_has_no_moments_is_refused():
    with pytest.raises(InputError, match="1 vectors have no covariance"):
        _ = Moments().add(vectors(1, 3)).covariance
    with pytest.raises(InputError, match="2 components after some of 3"):
        Moments().add(vectors(5, 3)).add(vectors(5, 2))
