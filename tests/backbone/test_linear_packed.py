"""Packed products and fused activations give what the plain layers give, and notice when they must not."""

import copy
import pickle

import pytest
import torch
from tests.blocks import Forward, Gated, fused, packed_block, plainly, run, untouched
from torch import nn
from transformers.pytorch_utils import Conv1D

from afterword.backbone import linear_packed as kernels
from afterword.backbone.linear_packed import PackedLinears
from afterword.errors import ModelError

if not torch.backends.mkldnn.is_available():
    pytest.skip("torch was built without oneDNN", allow_module_level=True)


@pytest.fixture(autouse=True)
def _always_packed(monkeypatch):
    """Whether packing pays is measured on each machine; here it is always on."""
    monkeypatch.setenv("AFTERWORD_KERNELS", "packed")


@pytest.mark.parametrize("act", [nn.GELU(), nn.SiLU(), nn.ReLU()])
@pytest.mark.parametrize("kind", [Forward, Gated])
def test_what_comes_out_is_the_same(act, kind):
    packed, x = packed_block(kind(copy.deepcopy(act))), torch.randn(40, 32)
    torch.testing.assert_close(run(packed, x), plainly(packed.model, x), rtol=1e-5, atol=1e-6)
    assert len(packed.layers) == 2
    assert fused(packed) == (kind is Forward and not isinstance(act, nn.ReLU))
    assert untouched(packed.model)


def test_torch_s_own_gelu_says_which_it_is():
    """One class, two formulas, 4e-4 apart."""
    packed, x = packed_block(Forward(nn.GELU(approximate="tanh"))), 3 * torch.randn(40, 32)
    torch.testing.assert_close(run(packed, x), plainly(packed.model, x), rtol=1e-5, atol=1e-5)


def test_an_activation_of_two_blocks_is_left_alone():
    act = nn.GELU()
    packed = PackedLinears(nn.Sequential(Forward(act), Forward(act)).eval())
    x = torch.randn(40, 32)
    torch.testing.assert_close(run(packed, x), plainly(packed.model, x), rtol=1e-5, atol=1e-6)
    assert packed.layers and not fused(packed)


@pytest.mark.parametrize("change", ["module", "class of one's own", "forward", "block", "option"])
def test_an_activation_that_is_replaced_after_the_first_run_is_used(change):
    block = Forward(nn.GELU())
    packed, x = packed_block(block), 3 * torch.randn(40, 32)
    before = run(packed, x)
    if change == "module":
        block.act = nn.Tanh()
    elif change == "class of one's own":
        block.act = type("GELU", (nn.Module,), {"forward": lambda self, h: h * 3})()
        block.act.approximate = "none"
    elif change == "forward":
        block.act.forward = lambda h: h + 1
    elif change == "block":
        block.forward = lambda h: block.down(torch.tanh(block.up(h)))
    else:
        block.act.approximate = "tanh"
    after = run(packed, x)
    assert (after - before).abs().max() > 1e-5
    torch.testing.assert_close(after, plainly(packed.model, x), rtol=1e-5, atol=1e-5)


def test_a_layer_that_is_replaced_is_used():
    block = Forward(nn.GELU())
    packed, x = packed_block(block), torch.randn(40, 32)
    run(packed, x)
    block.up = nn.Linear(32, 64)
    torch.testing.assert_close(run(packed, x), plainly(packed.model, x), rtol=1e-5, atol=1e-6)
    block.down.forward = lambda h: h[..., :32] * 7
    torch.testing.assert_close(run(packed, x), plainly(packed.model, x), rtol=1e-5, atol=1e-6)


def test_transposed_layers_are_packed_too():
    packed, x = PackedLinears(nn.Sequential(Conv1D(48, 32)).eval()), torch.randn(1, 40, 32)
    torch.testing.assert_close(run(packed, x), plainly(packed.model, x), rtol=1e-5, atol=1e-6)
    assert [layer.weight.shape for layer in packed.layers] == [(48, 32)]


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


def test_a_few_elements_changed_behind_autograd_s_back_are_there_once_packed_layers_are_dropped():
    """What the docs say of edits through `.data`: they may slip through, until everything is made anew."""
    block = Forward(nn.GELU())
    packed, x = packed_block(block), torch.randn(40, 32)
    run(packed, x)
    block.up.weight.data[5] += 1
    packed.drop()
    torch.testing.assert_close(run(packed, x), plainly(packed.model, x), rtol=1e-5, atol=1e-6)


def test_training_drops_the_packed_layers_and_gets_gradients():
    packed, x = packed_block(Forward(nn.GELU())), torch.randn(40, 32)
    run(packed, x)
    assert packed.layers
    with packed.fast():
        packed.model(x).sum().backward()
    assert not packed.layers
    assert all(p.grad is not None for p in packed.model.parameters())


def test_autocast_is_obeyed():
    packed, x = packed_block(Forward(nn.GELU())), torch.randn(40, 32)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(run(packed, x), plainly(packed.model, x))


def test_bfloat16_is_packed_too():
    packed, x = packed_block(Forward(nn.GELU()).bfloat16()), torch.randn(40, 32).bfloat16()
    wanted = plainly(copy.deepcopy(packed.model).float(), x.float())
    torch.testing.assert_close(run(packed, x).float(), wanted, rtol=2e-2, atol=2e-2)


def test_little_memory_means_plain(monkeypatch):
    packed, x = packed_block(Forward(nn.GELU())), torch.randn(40, 32)
    monkeypatch.setattr(kernels, "free_memory", lambda: 1000)
    assert torch.equal(run(packed, x), plainly(packed.model, x))
    assert not packed.layers
    with pytest.raises(ModelError, match=r"needs 0\.0 GB for packed weights"):
        run(PackedLinears(packed.model, "bfloat16"), x)


def test_the_switch(monkeypatch):
    packed, x = packed_block(Forward(nn.GELU())), torch.randn(40, 32)
    with torch.no_grad():
        assert packed.usable()
        monkeypatch.setenv("AFTERWORD_KERNELS", "plain")
        assert not packed.usable()
    assert torch.equal(run(packed, x), plainly(packed.model, x))


@pytest.mark.parametrize("other", ["plain", "packed"])
def test_the_kernels_of_another_process_are_followed(other, monkeypatch):
    monkeypatch.setenv("AFTERWORD_KERNELS", other)
    first, x = packed_block(Forward(nn.GELU())), torch.randn(40, 32)
    wanted, kernels = run(first, x), first.kernels()
    assert kernels == {"32 -> 64": other, "64 -> 32": other}
    monkeypatch.setenv("AFTERWORD_KERNELS", "")
    second = PackedLinears(copy.deepcopy(first.model))
    run(second, x)
    second.follow(kernels)
    assert second.kernels() == kernels and len(second.layers) == (2 if other == "packed" else 0)
    assert torch.equal(run(second, x), wanted)
    monkeypatch.setenv("AFTERWORD_KERNELS", "plain" if other == "packed" else "packed")
    assert other not in second.kernels().values()  # the variable has the last word


def test_a_copy_has_the_kernels_of_its_original_while_circumstances_last(monkeypatch):
    monkeypatch.setenv("AFTERWORD_KERNELS", "")
    first = packed_block(Forward(nn.GELU()))
    chosen = first.kernels()
    others = {name: "plain" if kernel == "packed" else "packed" for name, kernel in chosen.items()}
    first.follow(others)
    assert first.kernels() == others
    for copied in (pickle.loads(pickle.dumps(first)), copy.deepcopy(first)):
        assert copied.kernels() == others
    moved = PackedLinears(first.model, "float32", ("another processor", others))
    assert moved.kernels() == chosen


def test_kernels_that_are_none_are_not_followed(monkeypatch):
    monkeypatch.setenv("AFTERWORD_KERNELS", "")
    packed = packed_block(Forward(nn.GELU()))
    chosen = packed.kernels()
    packed.follow({"32 -> 64": "fast", "64 -> 32": ["packed"], "1 -> 1": "plain"})
    assert packed.kernels() == chosen


def test_too_little_memory_makes_plain_kernels_and_says_so(monkeypatch):
    monkeypatch.setattr(kernels, "free_memory", lambda: 0)
    assert set(packed_block(Forward(nn.GELU())).kernels().values()) == {"plain"}
