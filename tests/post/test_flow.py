import numpy as np
import pytest
import torch

from afterword.errors import InputError, MethodError
from afterword.post import Flow, Glow
from afterword.post.flow import sample

G = torch.Generator().manual_seed(0)
X = torch.randn(3000, 6, generator=G) @ torch.randn(6, 6, generator=G) + 4
BENT = torch.cat([X[:, :3], X[:, 3:] + X[:, :3] ** 2], 1)  # no Gaussian: one half bends with the other


@pytest.mark.parametrize("coupling", ["additive", "affine"])
def test_training_makes_vectors_more_likely_than_any_gaussian_does(coupling: str):
    step = Flow(epochs=6, steps=4, batch=100, rate=5e-3, coupling=coupling).fit(BENT)  # type: ignore[arg-type]
    x = BENT - BENT.mean(0)
    covariance = x.T @ x / len(x)
    gaussian = -0.5 * (6 * np.log(2 * np.pi) + torch.logdet(covariance) + 6)
    untrained = Glow(6, 4, coupling=coupling)  # type: ignore[arg-type]
    untrained.start(BENT)
    made = step.net.log_likelihood(BENT).mean()
    assert made > untrained.log_likelihood(BENT).mean() + 1
    assert made > gaussian


def test_latents_are_invertible():
    step = Flow(batch=500).fit(X)
    torch.testing.assert_close(step.net.inverse(step(X)), X, atol=1e-4, rtol=0)


def test_a_seed_gives_the_same_flow_whatever_else_is_random():
    torch.manual_seed(1)
    one = Flow(seed=3, batch=500).fit(X)(X)
    torch.manual_seed(2)
    state = torch.random.get_rng_state()
    two = Flow(seed=3, batch=500).fit([X[:1000], X[1000:]])(X)
    assert torch.equal(one, two)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert not torch.equal(one, Flow(seed=4, batch=500).fit(X)(X))


def test_it_can_be_fitted_where_gradients_are_off():
    with torch.no_grad():
        step = Flow(batch=500).fit(X)
    assert not step(X).requires_grad
    assert step(X.double()).dtype == torch.float64


def test_of_many_vectors_each_is_as_likely_to_be_kept():
    x = torch.arange(300.0)[:, None]
    kept = torch.zeros(300)
    for seed in range(400):
        found = sample(iter(x.split(70)), 60, torch.Generator().manual_seed(seed))[:, 0].long()
        assert len(found) == 60 and (found.diff() > 0).all()
        kept[found] += 1
    # binomial(400, 1/5): mean 80, deviation 8
    assert kept.mean() == 80 and kept.min() > 45 and kept.max() < 115
    assert abs(kept[:70].mean() - 80) < 3 and abs(kept[-20:].mean() - 80) < 6
    assert torch.equal(sample(iter(x.split(70)), 300, torch.Generator()), x)


def test_what_cannot_be_trained_is_refused():
    with pytest.raises(InputError, match="1 vectors"):
        Flow().fit(X[:1])
    with pytest.raises(InputError, match="lower the rate"):
        Flow(rate=1e6).fit(X)
    with pytest.raises(MethodError, match="learning rate"):
        Flow(rate=0.0)
    with pytest.raises(MethodError, match="epochs=0"):
        Flow(epochs=0)
