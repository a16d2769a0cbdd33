import pytest
import torch

from afterword.errors import ModelError
from afterword.post import ACTIVATIONS, Dense, Normalise, Truncate

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


def test_an_unknown_activation_is_refused_by_name():
    with pytest.raises(ModelError, match=r"'Softplus': known are Identity, Tanh"):
        Dense(torch.eye(2), None, "Softplus")
