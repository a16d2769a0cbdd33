"""Cosines from products of layers are the cosines of the vectors."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F

from afterword import classical
from afterword.methods.states import States
from afterword.methods.weights import Plain
from afterword.tune.cosines import cosines, mixture, products, raw_and_centred
from afterword.tune.recipes import Family

KINDS = ("last", "layer:0", "layer:0+1", "first_last")
FAMILY = Family((Plain(),), (partial(classical, "mean"),), KINDS)


def vectors(dtype=torch.float64, shift: float = 0.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return (torch.randn(10, 2, 3, 7, generator=generator, dtype=torch.float64) + shift).to(dtype)


def mixed(x: torch.Tensor) -> torch.Tensor:
    """The vectors of each kind (T, R, C, D), one by one."""
    return torch.stack([x[:, :, [FAMILY.layers.index(k) for k in States(kind).layers]].mean(2) for kind in KINDS], 2)


def test_cosines_of_all_kinds():
    x, mix = vectors(), mixture(FAMILY).double()
    slow = mixed(x)
    assert torch.allclose(cosines(*products(x, mix)), F.cosine_similarity(slow[:5], slow[5:], dim=-1))


@pytest.mark.parametrize(("dtype", "shift", "tolerance"), [(torch.float64, 0, 1e-12), (torch.float32, 300, 1e-4)])
def test_without_the_mean_even_where_it_is_all_there_is(dtype, shift, tolerance):
    x, mix = vectors(dtype, shift), mixture(FAMILY).to(dtype)
    exact = mixed(x.double())
    centred = exact - exact.mean(0)
    found = raw_and_centred(x.clone(), x.double().mean(0).to(dtype), mix)
    raw = F.cosine_similarity(exact[:5], exact[5:], dim=-1)
    assert torch.allclose(found[..., 0].double(), raw, atol=tolerance)
    assert torch.allclose(found[..., 1].double(), F.cosine_similarity(centred[:5], centred[5:], dim=-1), atol=tolerance)


def test_one_vector_for_all_texts_is_nothing_without_the_mean():
    x = vectors(torch.float32)
    x[:] = x[0] + 1e-8 * x
    found = raw_and_centred(x, x.mean(0), mixture(FAMILY))
    assert torch.allclose(found[..., 0], torch.ones(5, 2, 4)) and found[..., 1].isnan().all()
