import numpy as np
import pytest
import torch
import torch.nn.functional as F

from afterword.errors import MethodError, ModelError
from afterword.post import ACTIVATIONS, Dense, Flow, Normalise, Truncate, Whiten

VECTORS = torch.randn(5, 6, generator=torch.Generator().manual_seed(0))


def test_normalise_gives_length_one_and_leaves_zero_alone():
    assert torch.allclose(Normalise()(VECTORS).norm(dim=1), torch.ones(5))
    assert not Normalise()(torch.zeros(1, 6)).any()


def test_truncate_keeps_the_first_components():
    assert torch.equal(Truncate(2)(VECTORS), VECTORS[:, :2])
    assert torch.equal(Truncate(99)(VECTORS), VECTORS)


def test_the_first_rows_of_the_identity_cut_to_the_last_bit():
    assert torch.equal(Dense.first(4, 6)(VECTORS), Truncate(4)(VECTORS))
    assert Dense.first(9, 6).weight.shape == (6, 6)


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("bias", [True, False])
def test_dense_is_a_linear_layer_and_torchs_activation(name: str, bias: bool):
    layer = torch.nn.Linear(6, 3, bias=bias)
    step = Dense(layer.weight.detach(), layer.bias.detach() if bias else None, name)
    assert torch.allclose(step(VECTORS), getattr(torch.nn, name)()(layer(VECTORS)))


WIDE = torch.randn(150, 64, generator=torch.Generator().manual_seed(1))
STEPS = {
    "dense": Dense(WIDE[:33], torch.ones(33), "GELU"),
    "one component": Dense(WIDE[:1]),
    "whiten": Whiten(10).fit(WIDE),
    "flow": Flow(coupling="affine").fit(WIDE),
}


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("name", STEPS)
def test_a_vector_has_the_same_bits_alone_and_among_others(name: str, threads: int):
    torch.set_num_threads(threads)
    together = STEPS[name](WIDE)
    assert torch.equal(torch.cat([STEPS[name](WIDE[i : i + 1]) for i in range(0, 150, 7)]), together[::7])
    assert all(torch.equal(STEPS[name](WIDE[:n]), together[:n]) for n in range(1, 150, 11))


def test_an_unknown_activation_is_refused_by_name():
    with pytest.raises(ModelError, match=r"'Softplus': known are Identity, Tanh"):
        Dense(torch.eye(2), None, "Softplus")


def test_vectors_of_another_width_are_refused_in_one_line() -> None:
    whiten = Whiten().fit(torch.randn(40, 6))
    flow = Flow(steps=1).fit(torch.randn(40, 6))
    for step in (whiten, flow):
        with pytest.raises(MethodError, match=r"of 6 components, and these have 8: .*fit it anew") as error:
            step(torch.randn(2, 8))
        assert "\n" not in str(error.value)


def test_a_count_of_numpy_is_a_count() -> None:
    assert Truncate(np.int64(3)) == Truncate(3)
    assert type(Truncate(np.int64(3)).dimensions) is int


@pytest.mark.parametrize("threads", [1, 2, 8])
@pytest.mark.parametrize(("width", "out"), [(22, 22), (50, 50), (63, 4), (7, 7), (99, 99), (384, 13)])
def test_a_vector_has_the_same_bits_alone_and_among_others_at_any_width(width: int, out: int, threads: int):
    """MKL rounds narrow rows, and rows that do not begin at multiples of 16 bytes, by their place."""
    g = torch.Generator().manual_seed(0)
    dense = Dense(torch.randn(out, width, generator=g), torch.randn(out, generator=g), "GELU")
    vectors = torch.randn(400, width, generator=g)
    torch.set_num_threads(threads)
    together = dense(vectors)
    torch.testing.assert_close(together, F.gelu(vectors @ dense.weight.T + dense.bias), rtol=1e-4, atol=1e-5)
    for start, count in ((0, 1), (3, 2), (7, 9), (1, 70), (33, 300)):
        alone = dense(vectors[start : start + count].clone())
        assert torch.equal(alone, together[start : start + count]), (start, count)
