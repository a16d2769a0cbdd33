"""Convert half-precision weights to float32 for a while, one layer at a time, to need little more memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

HALF = (torch.float16, torch.bfloat16)
LARGE = 0.05  # an embedding table with a larger share of the weights stays as it is, and its output becomes float32


def half(module: nn.Module) -> list[Tensor]:
    """A module's parameters and buffers in half precision."""
    return [t for t in (*module.parameters(), *module.buffers()) if t.dtype in HALF]


@contextmanager
def in_float32(model: nn.Module) -> Iterator[None]:
    """Convert parameters and buffers to float32 for a while; afterwards they are restored bit for bit."""
    raised = _Raised()
    try:
        raised.raise_all(half(model))
        yield
    finally:
        raised.put_back()


@contextmanager
def layers_in_float32(model: nn.Module) -> Iterator[None]:
    """As `in_float32`, but each layer only while it runs, so that only one layer needs memory in float32.

    Large embedding tables stay in half precision, and their output is converted. A layer that uses another layer's
    weights fails, since they are in half precision: use `in_float32` then.
    """
    raised, units = _Raised(), _units(model)
    within = {id(t) for unit in units for t in half(unit)}
    outside = {id(t): t for t in half(model) if id(t) not in within}
    tables = _large_tables(model, outside)
    hooks = [table.register_forward_hook(_as_float32) for table in tables]
    for unit in units if within else ():
        hooks.append(unit.register_forward_pre_hook(lambda m, _: raised.raise_all(half(m)), prepend=True))
        hooks.append(unit.register_forward_hook(lambda m, *_: raised.put_back(m), always_call=True))
    kept = {id(table.weight) for table in tables}
    try:
        raised.raise_all([t for i, t in outside.items() if i not in kept])
        yield
    finally:
        for hook in hooks:
            hook.remove()
        raised.put_back()


class _Raised:
    """Tensors that were converted to float32, with their data in half precision, to restore it without rounding."""

    def __init__(self) -> None:
        self._was: dict[int, tuple[Tensor, Tensor]] = {}

    def raise_all(self, tensors: list[Tensor]) -> None:
        """Convert tensors to float32."""
        for t in tensors:
            self._was[id(t)] = t, t.data
            t.data = t.data.float()

    def put_back(self, module: nn.Module | None = None) -> None:
        """Restore the tensors of a module, or all."""
        chosen = list(self._was) if module is None else [id(t) for t in (*module.parameters(), *module.buffers())]
        for t, was in (self._was.pop(i) for i in chosen if i in self._was):
            t.data = was


def _units(module: nn.Module) -> list[nn.Module]:
    """The layers: the members of the outermost `nn.ModuleList`s."""
    units: list[nn.Module] = []
    for child in module.children():
        if isinstance(child, nn.ModuleList):
            inside = [m for m in child if not isinstance(m, nn.ModuleList | nn.ModuleDict)]
            units += inside + [unit for m in child if m not in inside for unit in _units(m)]
        else:
            units += _units(child)
    return units


def _large_tables(model: nn.Module, outside: dict[int, Tensor]) -> list[Any]:
    """Embedding tables outside the layers with a large share of the weights."""
    most = LARGE * sum(t.numel() for t in half(model))
    tables = (m for m in model.modules() if isinstance(m, nn.Embedding) and id(m.weight) in outside)
    return [m for m in tables if m.weight.numel() > most]


def _as_float32(module: nn.Module, args: Any, output: Any) -> Any:
    return output.float() if isinstance(output, Tensor) else output
