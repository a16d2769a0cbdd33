import pytest
import torch
from torch import Tensor

from afterword.errors import InputError, MethodError
from afterword.post import Glow


def glow(width: int, coupling: str, spread: float = 0.3) -> Glow:
    """A flow whose weights are far from where they start, in float64."""
    net = Glow(width, steps=4, hidden=8, coupling=coupling).double()  # type: ignore[arg-type]
    g = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(torch.randn(p.shape, generator=g) * spread)
    return net


def vectors(n: int, width: int) -> Tensor:
    return torch.randn(n, width, generator=torch.Generator().manual_seed(2), dtype=torch.float64) * 2 + 1


@pytest.mark.parametrize("coupling", ["additive", "affine"])
@pytest.mark.parametrize("width", [2, 5, 6])
def test_the_inverse_gives_the_vectors_back(width: int, coupling: str):
    net, x = glow(width, coupling), vectors(20, width)
    z = net(x)[0]
    torch.testing.assert_close(net.inverse(z), x, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(net(net.inverse(x))[0], x, rtol=1e-12, atol=1e-12)
    assert (z - x).abs().max() > 0.5


@pytest.mark.parametrize("coupling", ["additive", "affine"])
@pytest.mark.parametrize("width", [2, 5, 6])
def test_the_log_determinant_is_autograds(width: int, coupling: str):
    net, x = glow(width, coupling), vectors(7, width)
    jacobians = torch.stack([torch.autograd.functional.jacobian(lambda v: net(v[None])[0][0], row) for row in x])
    sign, size = torch.linalg.slogdet(jacobians)
    torch.testing.assert_close(net(x)[1], size, rtol=1e-12, atol=1e-12)
    assert (sign != 0).all()
    constant = bool((size - size[0]).abs().max() < 1e-12)
    assert constant == (coupling == "additive")  # additive couplings keep volumes: actnorm alone changes them


def test_the_likelihood_is_a_density():
    """exp log p integrates to 1 over the plane."""
    net = glow(2, "affine", 0.2)
    axis = torch.linspace(-12, 12, 601, dtype=torch.float64)
    grid = torch.cartesian_prod(axis, axis)
    with torch.no_grad():
        whole = float(net.log_likelihood(grid).exp().sum() * (axis[1] - axis[0]) ** 2)
    assert whole == pytest.approx(1, abs=1e-6)


def test_actnorm_starts_with_mean_0_and_variance_1():
    net, x = Glow(5).double(), vectors(100, 5) * torch.tensor([1, 10, 0.1, 3, 0])
    net.start(x)
    z = net(x)[0]
    kept = z[:, z.std(0) > 1e-9]
    assert kept.shape[1] == 4  # a component that never varies is no reason to divide by nothing
    torch.testing.assert_close(kept.mean(0), torch.zeros(4, dtype=torch.float64), atol=1e-12, rtol=0)
    torch.testing.assert_close(kept.std(0, correction=0), torch.ones(4, dtype=torch.float64))


def test_the_seed_decides_permutations_and_weights():
    one, two, other = Glow(16, seed=1), Glow(16, seed=1), Glow(16, seed=2)
    state = one.state_dict()
    assert all(torch.equal(state[k], v) for k, v in two.state_dict().items())
    assert not torch.equal(state["steps.0.order"], other.state_dict()["steps.0.order"])
    assert not torch.equal(state["steps.0.weights.0"], other.state_dict()["steps.0.weights.0"])


def test_what_cannot_be_coupled_is_refused():
    with pytest.raises(InputError, match="1 component"):
        Glow(1)
    with pytest.raises(MethodError, match="additive or affine"):
        Glow(4, coupling="linear")  # type: ignore[arg-type]
