"""Packed products and fused activations give what the plain layers give, and notice when they must not."""

import copy

import pytest
import torch
from torch import Tensor, nn

from afterword import kernels
from afterword.kernels import PackedLinears, free_memory, packed_works

if not torch.backends.mkldnn.is_available():
    pytest.skip("torch was built without oneDNN", allow_module_level=True)


class Forward(nn.Module):
    """A feed-forward block: its first layer feeds the activation alone."""

    def __init__(self, act: nn.Module) -> None:
        super().__init__()
        self.up, self.act, self.down = nn.Linear(32, 64), act, nn.Linear(64, 32)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.act(self.up(x)))


class Gated(Forward):
    """A block whose first layer feeds its activation and something else too, as ModernBERT's does."""

    def forward(self, x: Tensor) -> Tensor:
        h = self.up(x)
        return self.down(self.act(h) * h)


@pytest.fixture(autouse=True)
def _always_packed(monkeypatch):
    """Whether packing pays is measured on each machine; here it is always on."""
    monkeypatch.setattr(kernels, "packed_works", lambda dtype: True)


def run(packed: PackedLinears, x: Tensor) -> Tensor:
    with torch.no_grad(), packed.fast():
        return packed.model(x)


def plainly(model: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        return model(x)


def packed_block(block: nn.Module) -> PackedLinears:
    torch.manual_seed(0)
    return PackedLinears(nn.Sequential(block).eval())


@pytest.mark.parametrize("act", [nn.GELU(), nn.SiLU(), nn.ReLU()])
@pytest.mark.parametrize("kind", [Forward, Gated])
def test_what_comes_out_is_the_same(act, kind):
    packed, x = packed_block(kind(copy.deepcopy(act))), torch.randn(40, 32)
    torch.testing.assert_close(run(packed, x), plainly(packed.model, x), rtol=1e-5, atol=1e-6)
    fused = len(packed._pairs[1])
    assert fused == (kind is Forward and not isinstance(act, nn.ReLU))
    assert all("forward" not in m.__dict__ for m in packed.model.modules())


def test_torch_s_own_gelu_says_which_it_is():
    """One class, two formulas, 4e-4 apart."""
    packed, x = packed_block(Forward(nn.GELU(approximate="tanh"))), 3 * torch.randn(40, 32)
    torch.testing.assert_close(run(packed, x), plainly(packed.model, x), rtol=1e-5, atol=1e-5)


def test_an_activation_of_two_blocks_is_left_alone():
    act = nn.GELU()
    packed = PackedLinears(nn.Sequential(Forward(act), Forward(act)).eval())
    x = torch.randn(40, 32)
    torch.testing.assert_close(run(packed, x), plainly(packed.model, x), rtol=1e-5, atol=1e-6)
    assert not packed._pairs[1]


def test_a_hook_sees_what_the_layer_gives_by_itself():
    block, seen = Forward(nn.GELU()), []
    packed, x = packed_block(block), torch.randn(40, 32)
    run(packed, x)
    block.up.register_forward_hook(lambda m, i, out: seen.append(out))
    run(packed, x)
    torch.testing.assert_close(seen[0], plainly(block.up, x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("change", ["in place", "behind autograd's back", "another tensor"])
def test_a_weight_that_changed_is_packed_anew(change):
    block = Forward(nn.GELU())
    packed, x = packed_block(block), torch.randn(40, 32)
    before = run(packed, x)
    with torch.no_grad():
        if change == "in place":
            block.up.weight.mul_(2)
        elif change == "behind autograd's back":
            block.up.weight.data.mul_(2)
        else:
            block.up.weight = nn.Parameter(block.up.weight * 2)
    after = run(packed, x)
    assert (after - before).abs().max() > 1e-2
    torch.testing.assert_close(after, plainly(packed.model, x), rtol=1e-5, atol=1e-6)


def test_training_drops_the_twins_and_gets_gradients():
    packed, x = packed_block(Forward(nn.GELU())), torch.randn(40, 32)
    run(packed, x)
    assert packed._packed
    with packed.fast():
        packed.model(x).sum().backward()
    assert not packed._packed
    assert all(p.grad is not None for p in packed.model.parameters())


def test_bfloat16_is_packed_too():
    packed, x = packed_block(Forward(nn.GELU()).bfloat16()), torch.randn(40, 32).bfloat16()
    wanted = plainly(copy.deepcopy(packed.model).float(), x.float())
    torch.testing.assert_close(run(packed, x).float(), wanted, rtol=2e-2, atol=2e-2)


def test_little_memory_means_plain(monkeypatch):
    packed, x = packed_block(Forward(nn.GELU())), torch.randn(40, 32)
    monkeypatch.setattr(kernels, "free_memory", lambda: 1000)
    assert torch.equal(run(packed, x), plainly(packed.model, x))
    assert not packed._packed


def test_the_switch(monkeypatch):
    monkeypatch.setenv("AFTERWORD_KERNELS", "plain")
    packed_works.cache_clear()
    assert packed_works(torch.float32) is False
    packed_works.cache_clear()
    assert free_memory() > 1 << 20
