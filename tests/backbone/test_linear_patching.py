"""Layers are patched in place: hooks are called as before, copies and other threads are not affected."""

import copy
import io
import threading

import pytest
import torch
from tests.blocks import Forward, fused, packed_block, plainly, run, untouched
from torch import Tensor, nn

from afterword.backbone import linear_patching
from afterword.backbone.linear_packed import PackedLinears

if not torch.backends.mkldnn.is_available():
    pytest.skip("torch was built without oneDNN", allow_module_level=True)


@pytest.fixture(autouse=True)
def _always_packed(monkeypatch):
    """Whether packing pays is measured on each machine; here it is always on."""
    monkeypatch.setenv("AFTERWORD_KERNELS", "packed")


@pytest.mark.parametrize("where", ["up", "act"])
@pytest.mark.parametrize("when", ["before", "after", "everywhere"])
def test_a_hook_sees_what_it_sees_without_packing(where, when):
    """Registered after the first run, on the layer or on the activation whose work the layer does."""
    block, seen = Forward(nn.GELU()), []
    packed, x = packed_block(block), torch.randn(40, 32)
    run(packed, x)
    assert fused(packed) == 1
    module = getattr(block, where)
    if when == "before":
        handle = module.register_forward_pre_hook(lambda m, i: seen.append(i[0]))
    elif when == "after":
        handle = module.register_forward_hook(lambda m, i, out: seen.append(out))
    else:
        handle = nn.modules.module.register_module_forward_hook(lambda m, i, out: seen.append(out))
    try:
        out = run(packed, x)
        found, seen[:] = list(seen), []
        torch.testing.assert_close(out, plainly(packed.model, x), rtol=1e-5, atol=1e-6)
    finally:
        handle.remove()
    assert len(found) == len(seen) >= 1
    for a, b in zip(found, seen, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_a_hook_that_changes_what_an_activation_gets_is_heard():
    block = Forward(nn.GELU())
    packed, x = packed_block(block), torch.randn(40, 32)
    run(packed, x)
    block.act.register_forward_pre_hook(lambda m, i: (i[0] * 2,))
    torch.testing.assert_close(run(packed, x), plainly(packed.model, x), rtol=1e-5, atol=1e-6)


class Waiting(Forward):
    """A block that stops in the middle of a forward until it is told to go on."""

    def __init__(self) -> None:
        super().__init__(nn.GELU())
        self.inside = self.go_on = None

    def forward(self, x: Tensor) -> Tensor:
        h = self.up(x)
        if self.inside is not None:
            self.inside.set()
            assert self.go_on.wait(20)
        return self.down(self.act(h))


@pytest.mark.parametrize("how", ["copy", "pickle"])
def test_a_copy_made_while_another_thread_runs_has_layers_of_its_own(how):
    block = Waiting()
    packed, x = packed_block(block), torch.randn(40, 32)
    run(packed, x)
    block.inside, block.go_on, outs = threading.Event(), threading.Event(), []
    thread = threading.Thread(target=lambda: outs.append(run(packed, x)))
    events = block.inside, block.go_on
    thread.start()
    assert events[0].wait(20)
    block.inside = block.go_on = None
    try:
        if how == "copy":
            other = copy.deepcopy(packed.model)
        else:
            torch.save(packed.model, file := io.BytesIO())
            other = torch.load(io.BytesIO(file.getvalue()), weights_only=False)
        meanwhile = plainly(packed.model, x)
    finally:
        events[1].set()
        thread.join()
    assert untouched(other) and untouched(packed.model)
    for parameter in other.parameters():
        parameter.data.mul_(3)
    torch.testing.assert_close(meanwhile, outs[0], rtol=1e-5, atol=1e-6)
    fresh = Waiting().eval()
    fresh.load_state_dict(other[0].state_dict())
    assert torch.equal(plainly(other, x), plainly(fresh, x))
    torch.testing.assert_close(run(PackedLinears(other), x), plainly(fresh, x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("where", ["pack", "packed_linear"])
def test_an_interrupt_in_the_first_run_leaves_the_fast_path_on(monkeypatch, where):
    packed, x = packed_block(Forward(nn.GELU())), torch.randn(40, 32)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(linear_patching, where, interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(packed, x)
    assert untouched(packed.model)
    torch.testing.assert_close(run(packed, x), plainly(packed.model, x), rtol=1e-5, atol=1e-6)
    assert len(packed.layers) == 2 and fused(packed) == 1 and all(layer._packed is not None for layer in packed.layers)
