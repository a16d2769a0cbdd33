"""Feed-forward blocks for tests of kernels."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from afterword.backbone.linear_packed import PackedLinears
from afterword.backbone.linear_patching import SLOT


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


def untouched(model: nn.Module) -> bool:
    """Whether nothing of ours is left in a model."""
    return not any({SLOT, "forward"} & set(vars(m)) for m in model.modules())


def fused(packed: PackedLinears) -> int:
    """Layers that do an activation's work."""
    return sum(layer.act is not None for layer in packed.layers)


def run(packed: PackedLinears, x: Tensor) -> Tensor:
    with torch.no_grad(), packed.fast():
        return packed.model(x)


def plainly(model: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        return model(x)


def packed_block(block: nn.Module) -> PackedLinears:
    torch.manual_seed(0)
    return PackedLinears(nn.Sequential(block).eval())
