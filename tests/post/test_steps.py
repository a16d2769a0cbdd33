import pytest
import torch

from afterword.errors import InputError, MethodError, ModelError, NotFitted
from afterword.post import (
    Centre,
    Dense,
    Flow,
    Normalise,
    RemoveMean,
    RemoveTop,
    Standardise,
    Truncate,
    Unfitted,
    Whiten,
)
from afterword.post.steps import ACTIVATIONS, blocks

ROWS = torch.randn(20_000, 3, generator=torch.Generator().manual_seed(0))
VECTORS = torch.randn(5, 6, generator=torch.Generator().manual_seed(0))


def test_normalise_gives_length_one_and_leaves_zero_alone():
    assert torch.allclose(Normalise()(VECTORS).norm(dim=1), torch.ones(5))
    assert not Normalise()(torch.zeros(1, 6)).any()


def test_truncate_keeps_the_first_components():
    assert torch.equal(Truncate(2)(VECTORS), VECTORS[:, :2])
    assert torch.equal(Truncate(99)(VECTORS), VECTORS)
    assert torch.equal(Dense.first(4, 6)(VECTORS), Truncate(4)(VECTORS))
    assert Dense.first(9, 6).weight.shape == (6, 6)


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("bias", [True, False])
def test_dense_is_a_linear_layer_and_torchs_activation(name: str, bias: bool):
    layer = torch.nn.Linear(6, 3, bias=bias)
    step = Dense(layer.weight.detach(), layer.bias.detach() if bias else None, name)
    assert torch.allclose(step(VECTORS), getattr(torch.nn, name)()(layer(VECTORS)))


def test_an_unknown_activation_is_refused_by_name():
    with pytest.raises(ModelError, match="'Softplus'"):
        Dense(torch.eye(2), None, "Softplus")


def test_vectors_of_another_width_are_refused_in_one_line() -> None:
    whiten = Whiten().fit(torch.randn(40, 6))
    flow = Flow(steps=1).fit(torch.randn(40, 6))
    for step in (whiten, flow):
        with pytest.raises(MethodError, match="6 components, but these have 8"):
            step(torch.randn(2, 8))


@pytest.mark.parametrize("step", [Centre(), Whiten(2), RemoveTop(1), RemoveMean(), Standardise(), Flow()], ids=str)
def test_what_has_seen_nothing_is_refused_and_says_how_to_fit_it(step: Unfitted):
    with pytest.raises(NotFitted, match=type(step).__name__):
        step(ROWS)


@pytest.mark.parametrize(
    "given", [ROWS, ROWS.numpy(), [ROWS[:1], ROWS[1:]], iter([ROWS.numpy()[:9000], ROWS[9000:]])], ids=type
)
def test_vectors_come_as_one_array_or_as_many(given):
    found = list(blocks(given))
    assert max(map(len, found)) == 8192
    assert torch.equal(torch.cat(found), ROWS)


@pytest.mark.parametrize(
    ("given", "value"),
    [
        (ROWS[0], r"\(3,\)"),
        ([ROWS, ROWS[:, :2]], r"\(20000, 2\)"),
        ([ROWS[:5], torch.tensor([[0.0, 1.0, 2.0], [0.0, torch.nan, 0.0]])], "vector 6 "),
    ],
)
def test_what_cannot_be_fitted_to_is_refused(given, value: str):
    with pytest.raises(InputError, match=value):
        list(blocks(given))
