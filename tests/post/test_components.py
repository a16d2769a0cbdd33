import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.decomposition import PCA

from afterword.errors import InputError, MethodError
from afterword.post import Affine, Centre, Moments, RemoveTop, Whiten


def vectors(n: int, d: int, seed: int = 0, shift: float = 3.0) -> torch.Tensor:
    g = torch.Generator().manual_seed(seed)
    return torch.randn(n, d, generator=g) @ torch.randn(d, d, generator=g) + shift


X = vectors(300, 12)


@given(n=st.integers(20, 60), d=st.integers(2, 10), keep=st.integers(1, 12), seed=st.integers(0, 9))
def test_the_covariance_of_whitened_vectors_is_the_identity(n: int, d: int, keep: int, seed: int):
    x = vectors(n, d, seed)
    z = Whiten(keep).fit(x)(x.double())
    kept = min(keep, d)
    assert z.shape == (n, kept)
    np.testing.assert_allclose(np.cov(z.T).reshape(kept, kept), np.eye(kept), atol=2e-3)  # weights are float32
    np.testing.assert_allclose(z.mean(0), 0, atol=2e-3)


def test_whitening_is_sklearns():
    theirs = PCA(5, whiten=True, svd_solver="full").fit_transform(X.double())
    np.testing.assert_allclose(Whiten(5).fit(X)(X.double()).abs(), abs(theirs), atol=2e-5)


def test_removing_the_top_leaves_all_that_pca_does_not_find():
    pca = PCA(3, svd_solver="full").fit(X.double())
    rest = (X.double().numpy() - pca.mean_) - pca.transform(X.double()) @ pca.components_
    made = RemoveTop(3).fit(X)(X.double()).numpy()
    np.testing.assert_allclose(made, rest, atol=2e-5)
    np.testing.assert_allclose(made @ pca.components_.T, 0, atol=2e-5)


def test_by_default_a_hundredth_is_removed():
    x = vectors(500, 300)
    made, two = RemoveTop().fit(x), RemoveTop(3).fit(x)
    assert torch.equal(made.weight, two.weight) and torch.equal(made.bias, two.bias)
    assert torch.equal(RemoveTop().fit(X).weight, RemoveTop(1).fit(X).weight)


def test_centred_vectors_have_no_mean():
    np.testing.assert_allclose(Centre().fit(X)(X), X - X.mean(0), atol=1e-6)


@pytest.mark.parametrize("step", [Centre(), Whiten(4), RemoveTop(2)], ids=str)
def test_a_step_is_the_same_from_moments_and_when_fitted_again(step: Affine):
    one, two, three = step.fit(X), step.fit(X.numpy()), step.of(Moments().add(X))
    assert torch.equal(one.weight, two.weight) and torch.equal(one.bias, three.bias)
    assert torch.equal(one.weight, three.weight) and one.weight.dtype == torch.float32


@pytest.mark.parametrize(
    ("step", "x", "words"),
    [
        (Whiten(), X[:5], "5 vectors differ in 4 directions only, not in 12.*whiten:dimensions=4"),
        (Whiten(3), torch.ones(9, 4), "differ in 0 directions"),
        (Whiten(), torch.ones(9, 4), "differ in 0 directions"),
        (Whiten(), X[:1], "1 vectors have no covariance"),
        (Whiten(), X[:0], "0 vectors have no covariance"),
        (Centre(), X[:0], "at least one"),
        (RemoveTop(12), X, "12 of them cannot be removed"),
        (RemoveTop(5), X[:4], "differ in 3 directions"),
    ],
)
def test_too_few_vectors_are_refused(step: Affine, x: torch.Tensor, words: str):
    with pytest.raises(InputError, match=words) as caught:
        step.fit(x)
    assert "\n" not in str(caught.value)


def test_components_that_never_change_are_left_out():
    x = torch.cat([X, torch.ones(300, 2)], 1)
    step = Whiten().fit(x)
    assert step.weight.shape == (12, 14)
    np.testing.assert_allclose(np.cov(step(x.double()).T), np.eye(12), atol=1e-4)
    with pytest.raises(InputError, match="differ in 12 directions only, not in 13"):
        Whiten(13).fit(x)


def test_fewer_vectors_than_dimensions_are_whitened_in_their_own_directions():
    z = Whiten(4).fit(X[:5])(X[:5].double())
    np.testing.assert_allclose(np.cov(z.T), np.eye(4), atol=1e-4)


@pytest.mark.parametrize(
    "call", [lambda: Whiten(0), lambda: RemoveTop(-1), lambda: Whiten(True), lambda: RemoveTop(1.5)]
)
def test_an_option_that_makes_no_sense(call):
    with pytest.raises(MethodError, match="whole number"):
        call()
