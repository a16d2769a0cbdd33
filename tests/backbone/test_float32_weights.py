import pytest
import torch
from torch import nn

from afterword.backbone import float32_weights as precision


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_comes_back_bit_for_bit(dtype: torch.dtype):
    model = nn.Linear(64, 64).to(dtype)
    every = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)
    model.weight.data = every[every.isfinite()][:4096].view(64, 64).clone()
    model.register_buffer("scale", torch.tensor([0.1], dtype=dtype))
    before = {n: t.clone().view(torch.int16) for n, t in model.state_dict().items()}
    weight = model.weight
    with precision.in_float32(model):
        assert {t.dtype for t in model.state_dict().values()} == {torch.float32}
    assert model.weight is weight
    after = model.state_dict()
    assert all(after[n].dtype == dtype and torch.equal(after[n].view(torch.int16), b) for n, b in before.items())


def test_half_precision_comes_back_after_an_error():
    model = nn.Linear(2, 2).half()
    with pytest.raises(ZeroDivisionError), precision.in_float32(model):
        _ = 1 / 0
    assert model.weight.dtype == torch.float16
