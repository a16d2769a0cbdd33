import numpy as np
import pytest
import torch

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
