"""Fast paths, each behind a probe and beside its plain twin.

On a CPU, float32 matrix products through MKL reach less than half of what oneDNN reaches on some processors
(AMD's above all). Weights packed once for oneDNN give the difference back at float32 precision. The operators are
private to torch, so they are tried before they are trusted; ``AFTERWORD_KERNELS=plain`` switches them off.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ROWS = 32
"""CPU kernels work on so many rows at a time; fewer take another path, with other last bits."""

FASTER = 1.3  # packed weights are used where they gain at least this much
SHARE = 0.4  # and where they take at most this share of the free memory
SAMPLES = 61  # elements of a weight that are compared to notice a change behind autograd's back


@lru_cache
def packed_works(dtype: torch.dtype) -> bool:
    """Whether oneDNN's packed linear is here, right and clearly faster on this machine."""
    if os.environ.get("AFTERWORD_KERNELS") == "plain" or not torch.backends.mkldnn.is_available():
        return False
    generator = torch.Generator().manual_seed(0)
    x, w = (torch.randn(r, 768, generator=generator).to(dtype) for r in (256, 768))
    try:
        packed = _pack(w)
        right = torch.allclose(_packed_linear(x, packed, None), F.linear(x, w), rtol=1e-2, atol=1e-2 if dtype == torch.bfloat16 else 1e-3)
    except (RuntimeError, AttributeError, NotImplementedError):
        return False
    return right and _seconds(lambda: F.linear(x, w)) > FASTER * _seconds(lambda: _packed_linear(x, packed, None))


def _seconds(call: Callable[[], Any]) -> float:
    """The best of a few runs: what the machine can do when nothing disturbs it."""
    best = float("inf")
    for _ in range(7):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best


def _pack(weight: Tensor) -> Tensor:
    return torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous())  # type: ignore[no-any-return]


def _packed_linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")  # type: ignore[no-any-return]


def free_memory() -> int:
    """Bytes that can be taken without swapping."""
    try:
        with open("/proc/meminfo") as f:
            rows = dict(line.split(":", 1) for line in f)
        return int(rows["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return int(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")) if hasattr(os, "sysconf") else 0


class PackedLinears:
    """Packed twins of a model's linear layers, used inside `fast` and made when first used.

    A twin is packed anew when its weight is another tensor, has another version, or differs in a sample of its
    elements (a merge through ``weight.data`` moves no version).

    Args:
        model: its ``nn.Linear`` and transformers' ``Conv1D`` are served.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self._packed: dict[int, tuple[tuple[Any, ...], Tensor]] = {}

    def usable(self) -> bool:
        """Whether the model is in a state that packed weights serve: CPU, inference, memory enough."""
        weight = next(self.model.parameters(), None)
        if weight is None or weight.device.type != "cpu" or torch.is_grad_enabled() or self.model.training:
            self.drop()
            return False
        if weight.dtype not in (torch.float32, torch.bfloat16) or not packed_works(weight.dtype):
            return False
        if self._packed:
            return True
        size = sum(m.weight.nbytes for m in self._linears())
        return size < SHARE * free_memory()

    def drop(self) -> None:
        """Forget every twin."""
        self._packed.clear()

    def _linears(self) -> list[Any]:
        return [m for m in self.model.modules() if type(m) is nn.Linear or type(m).__name__ == "Conv1D"]

    @contextmanager
    def fast(self) -> Iterator[None]:
        """Run the model's linear layers through their twins; afterwards they are as they were."""
        if not self.usable():
            yield
            return
        linears = [m for m in self._linears() if "forward" not in m.__dict__]
        for module in linears:
            module.forward = self._twin(module)
        try:
            yield
        finally:
            for module in linears:
                module.__dict__.pop("forward", None)

    def _twin(self, module: Any) -> Callable[[Tensor], Tensor]:
        conv = type(module).__name__ == "Conv1D"  # GPT-2 keeps its weights transposed

        def forward(x: Tensor) -> Tensor:
            if x.dtype != module.weight.dtype or x.numel() == 0:
                return type(module).forward(module, x)  # type: ignore[no-any-return]
            return _packed_linear(x, self._weight(module, conv), module.bias)

        return forward

    def _weight(self, module: Any, transposed: bool) -> Tensor:
        weight = module.weight
        flat = weight.detach().flatten()
        key = (weight.data_ptr(), weight._version, weight.shape, tuple(flat[:: max(1, len(flat) // SAMPLES)].tolist()))
        found = self._packed.get(id(module))
        if found is None or found[0] != key:
            found = key, _pack(weight.T if transposed else weight)
            self._packed[id(module)] = found
        return found[1]
