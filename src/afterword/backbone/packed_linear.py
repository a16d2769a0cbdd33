"""Linear layers with weights packed for oneDNN: 2.4 times as fast in float32 on AMD's CPUs with AVX-512.

On Intel's CPUs packed weights have 0.5 to 1.7 times the speed of plain ones, depending on the shape, so they are not
used there. ``AFTERWORD_PACKED=1`` packs weights on any CPU, ``AFTERWORD_PACKED=0`` on none; it is read at load.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

SHARE = 0.4  # the largest part of the free memory that packed weights may take

_PLAIN: ContextVar[bool] = ContextVar("afterword_plain_linears", default=False)


class PackedForward:
    """The forward of a linear layer: the packed weight where it is valid, else the layer's own forward.

    The packed weight is used for float32 inputs on the CPU, without gradients. It is packed at the first use, and again
    when the weight is a different tensor or was changed in place. An edit through ``weight.data`` is not noticed: call
    `Backbone.renew` after one.
    """

    def __init__(self, module: Any) -> None:
        self.module = module
        self._key: tuple[int, int] | None = None
        self._packed: Tensor | None = None
        self._source: Tensor | None = None  # a reference keeps its address from being used again

    def __call__(self, x: Tensor) -> Tensor:
        """``x @ weight.T + bias`` (..., out)."""
        module = self.module
        weight = module.weight
        if module.training or weight.dtype != torch.float32 or weight.device.type != "cpu":
            self.drop()
        if not self._usable(x, weight):
            return type(module).forward(module, x)  # type: ignore[no-any-return]
        key = weight.data_ptr(), weight._version
        if self._key != key or self._packed is None:
            rows = weight.T if _is_transposed(module) else weight
            self._packed = torch.ops.mkldnn._reorder_linear_weight(rows.detach().contiguous())
            self._key, self._source = key, weight.detach()
        return torch.ops.mkldnn._linear_pointwise(x, self._packed, module.bias, "none", [], "")  # type: ignore[no-any-return]

    def _usable(self, x: Tensor, weight: Tensor) -> bool:
        return (
            not (torch.is_grad_enabled() or self.module.training or _PLAIN.get())
            and x.dtype == weight.dtype == torch.float32
            and x.device.type == weight.device.type == "cpu"
            and not (weight.is_inference() or torch.is_autocast_enabled("cpu"))
            and x.numel() > 0
        )

    def drop(self) -> None:
        """Drop the packed weight."""
        self._key = self._packed = self._source = None

    def __getstate__(self) -> dict[str, Any]:
        """Copy the layer only: packed weights cannot be copied."""
        return {"module": self.module, "_key": None, "_packed": None, "_source": None}


def pack_linears(model: nn.Module) -> int:
    """Give the model's float32 linear layers a packed forward, where this CPU gains by it and the memory suffices.

    Returns the number of layers that have one.
    """
    linears: list[Any] = [m for m in model.modules() if type(m) is nn.Linear or _is_transposed(m)]
    linears = [m for m in linears if m.weight.dtype == torch.float32 and m.weight.device.type == "cpu"]
    size = sum(m.weight.nbytes for m in linears)
    if not linears or not packing_pays() or size >= SHARE * _free_memory():
        return 0
    for module in linears:
        if "forward" not in module.__dict__:
            module.forward = PackedForward(module)
    return len(linears)


def packed_layers(model: nn.Module) -> list[PackedForward]:
    """The packed forwards of a model's linear layers."""
    forwards = (m.__dict__.get("forward") for m in model.modules())
    return [f for f in forwards if isinstance(f, PackedForward)]


@contextmanager
def plain_linears() -> Iterator[None]:
    """Run linear layers with their plain weights in this thread."""
    token = _PLAIN.set(True)
    try:
        yield
    finally:
        _PLAIN.reset(token)


def packing_pays() -> bool:
    """Whether this is a CPU with AVX-512 that is not Intel's, or ``AFTERWORD_PACKED`` decides."""
    wanted = os.environ.get("AFTERWORD_PACKED")
    if not torch.backends.mkldnn.is_available() or wanted == "0":
        return False
    try:
        intel = "GenuineIntel" in Path("/proc/cpuinfo").read_text()
    except OSError:
        intel = True
    return wanted == "1" or (not intel and torch.backends.cpu.get_cpu_capability() == "AVX512")


def _free_memory() -> float:
    """The bytes that can be allocated: those of the machine, or the rest of a container's limit if that is less."""
    free = float(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    group = Path("/sys/fs/cgroup")
    try:
        rows = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines())
        free = float(rows["MemAvailable"].split()[0]) * 1024
        cached = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())["inactive_file"]
        used = int((group / "memory.current").read_text()) - int(cached)
        return min(free, float((group / "memory.max").read_text()) - used)
    except (OSError, ValueError, KeyError):  # "max": no limit; or not Linux
        return free


def _is_transposed(module: Any) -> bool:
    """Whether a layer keeps its weight as (in, out), as in GPT-2."""
    return type(module).__name__ == "Conv1D"
