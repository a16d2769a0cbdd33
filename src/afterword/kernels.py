"""Fast paths, each behind a probe and beside its plain twin.

On a CPU, float32 matrix products through MKL reach less than half of what oneDNN reaches on some processors
(AMD's above all). Weights packed once for oneDNN give the difference back at float32 precision. The operators are
private to torch, so they are tried before they are trusted; ``AFTERWORD_KERNELS=plain`` switches them off.
"""

from __future__ import annotations

import os
import threading
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
FUSED = {
    "GELUActivation": ("gelu", "none"),
    "GELU": ("gelu", "none"),
    "NewGELUActivation": ("gelu", "tanh"),
    "GELUTanh": ("gelu", "tanh"),
    "FastGELUActivation": ("gelu", "tanh"),
    "SiLUActivation": ("swish", ""),
    "SiLU": ("swish", ""),
}
"""Activations that oneDNN computes while a product is still in the registers, by class."""
LEAVES = frozenset(FUSED) | {"Linear", "Conv1D", "Dropout", "LayerNorm"}
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
        right = torch.allclose(
            _packed_linear(x, packed, None), F.linear(x, w), rtol=1e-2, atol=1e-2 if dtype == torch.bfloat16 else 1e-3
        )
    except (RuntimeError, AttributeError, NotImplementedError):
        return False
    if dtype == torch.bfloat16:  # through oneDNN anyway; packing saves the packing, fusing an activation more
        return right
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


def _packed_linear(x: Tensor, weight: Tensor, bias: Tensor | None, then: tuple[str, str] = ("none", "")) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, then[0], [], then[1])  # type: ignore[no-any-return]


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

    Where a layer feeds nothing but an activation, its twin does both, and the activation's passes on what it gets.

    A twin is packed anew when its weight is another tensor, has another version, or differs in a sample of its
    elements (a merge through ``weight.data`` moves no version). Several threads may be inside at once: the first
    one in puts the twins in place, the last one out takes them away.

    Args:
        model: its ``nn.Linear`` and transformers' ``Conv1D`` are served.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self._packed: dict[int, tuple[tuple[Any, ...], Tensor]] = {}
        self._pairs: tuple[tuple[int, ...], list[tuple[Any, Any]]] = ((), [])
        self._inside = 0
        self._served: list[Any] = []
        self._door = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        """Neither twins nor locks can be copied; the copy makes its own."""
        return {"model": self.model}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Start anew."""
        self.__init__(state["model"])  # type: ignore[misc]

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
        return bool(size < SHARE * free_memory())

    def drop(self) -> None:
        """Forget every twin."""
        self._packed.clear()

    def _linears(self) -> list[Any]:
        return [m for m in self.model.modules() if _is_linear(m)]

    @contextmanager
    def fast(self) -> Iterator[None]:
        """Run the model's linear layers through their twins; afterwards they are as they were."""
        if not self.usable():
            yield
            return
        with self._door:
            self._inside += 1
            if self._inside == 1:
                self._serve()
        try:
            yield
        finally:
            with self._door:
                self._inside -= 1
                for module in self._served if not self._inside else ():
                    module.__dict__.pop("forward", None)

    def _serve(self) -> None:
        """Put the twins in place."""
        linears = [m for m in self._linears() if "forward" not in m.__dict__]
        key = tuple(map(id, linears))
        if self._pairs[0] != key:
            self._pairs = key, self._feeding()
        fused = {id(m): act for m, act in self._pairs[1] if not (m._forward_hooks or act._forward_hooks)}
        self._served = linears + list(fused.values())
        for module in linears:
            act = fused.get(id(module))
            module.forward = self._twin(module, _work(act) if act is not None else ("none", ""))
            if act is not None:
                act.forward = _passing(act, module)

    def _feeding(self) -> list[tuple[Any, Any]]:
        """Linear layers that feed one activation and nothing else: tried on each kind of feed-forward block."""
        pairs: list[tuple[Any, Any]] = []
        names: dict[type, str | None] = {}
        for block in self.model.modules():
            children = dict(block.named_children())
            acts = [c for c in children.values() if type(c).__name__ in FUSED]
            if len(acts) != 1 or any(type(c).__name__ not in LEAVES for c in children.values()):
                continue
            if type(block) not in names:
                linears = [n for n, c in children.items() if _is_linear(c)]
                names[type(block)] = next((n for n in linears if self._same(block, children[n], acts[0])), None)
            if (name := names[type(block)]) in children:
                pairs.append((children[str(name)], acts[0]))
        acts_seen = [id(act) for _, act in pairs]
        return [(m, act) for m, act in pairs if acts_seen.count(id(act)) == 1]

    def _same(self, block: Any, linear: Any, act: Any) -> bool:
        """Whether the block gives what it gave when the linear layer does the activation's work too."""
        width = linear.weight.shape[0 if type(linear).__name__ == "Conv1D" else 1]
        x = torch.randn(1, 5, width, generator=torch.Generator().manual_seed(0)).to(linear.weight.dtype)
        try:
            expected = block(x)
            linear.forward, act.forward = self._twin(linear, _work(act)), _passing(act, linear)
            found = block(x)
        except Exception:  # a block that wants more than its input is left as it is
            return False
        finally:
            linear.__dict__.pop("forward", None)
            act.__dict__.pop("forward", None)
        if not isinstance(expected, Tensor):
            return False
        close = (2e-2 if x.dtype == torch.bfloat16 else 1e-4) * float(expected.abs().max())
        return torch.allclose(found, expected, rtol=0, atol=close)

    def _twin(self, module: Any, then: tuple[str, str]) -> Callable[[Tensor], Tensor]:
        conv = type(module).__name__ == "Conv1D"  # GPT-2 keeps its weights transposed

        def forward(x: Tensor) -> Tensor:
            if not _served(module, x):
                return type(module).forward(module, x)  # type: ignore[no-any-return]
            return _packed_linear(x, self._weight(module, conv), module.bias, then)

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


def _work(act: Any) -> tuple[str, str]:
    """How oneDNN names an activation; torch's own GELU says itself which it is."""
    name, how = FUSED[type(act).__name__]
    return name, getattr(act, "approximate", how)


def _is_linear(module: nn.Module) -> bool:
    return type(module) is nn.Linear or type(module).__name__ == "Conv1D"


def _served(linear: Any, x: Tensor) -> bool:
    """Whether the twin runs; a thread that trains the same model meanwhile needs what autograd knows."""
    return bool(x.dtype == linear.weight.dtype and x.numel() and not torch.is_grad_enabled())


def _passing(act: Any, linear: Any) -> Callable[[Tensor], Tensor]:
    """The activation's forward where the linear layer has done its work already."""

    def forward(x: Tensor) -> Tensor:
        return x if _served(linear, x) else type(act).forward(act, x)

    return forward
