"""Matrix products of linear layers on a CPU: torch's own, oneDNN's with packed weights, and how precise they are.

The operators are private to torch: `probe.py` tries them before they are trusted.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import ModelError

ROWS = 32
"""CPU kernels work on so many rows at a time; fewer take another path, with other last bits."""

Kernel = Literal["plain", "packed"]
Products = Literal["float32", "bfloat16"]
"""What float32 matrices are rounded to in a product; sums are float32 in both."""

SETTINGS = (
    "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "ONEDNN_DEFAULT_FPMATH_MODE", "MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS",
)  # fmt: skip
"""Environment variables that choose other kernels."""


def forced() -> Kernel | None:
    """The kernel that ``AFTERWORD_KERNELS`` asks for; None leaves the choice to the probe."""
    named = os.environ.get("AFTERWORD_KERNELS")
    return named if named in get_args(Kernel) else None  # type: ignore[return-value]


def pack(weight: Tensor) -> Tensor:
    """A weight (out, in) in oneDNN's own order."""
    return torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous())  # type: ignore[no-any-return]


def packed_linear(x: Tensor, weight: Tensor, bias: Tensor | None, then: tuple[str, str] = ("none", "")) -> Tensor:
    """``then(x @ weight.T + bias)`` (..., out), with a weight from `pack`."""
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, then[0], [], then[1])  # type: ignore[no-any-return]


def plain_linear(x: Tensor, weight: Tensor, bias: Tensor | None, transposed: bool) -> Tensor:
    """The same as ``nn.Linear`` runs it, or, with a weight (in, out), transformers' ``Conv1D``."""
    if not transposed:
        return F.linear(x, weight, bias)
    flat = x.view(-1, x.shape[-1])
    out = flat @ weight if bias is None else torch.addmm(bias, flat, weight)
    return out.view(*x.shape[:-1], -1)


def setting() -> str:
    """Everything in this process that chooses how float32 products are made, besides the number of threads."""
    backends: Any = torch.backends
    places = (backends, backends.mkldnn, getattr(backends.mkldnn, "matmul", None))
    precision = ",".join(str(getattr(place, "fp32_precision", "")) for place in places)
    named = ",".join(f"{name}={os.environ[name]}" for name in SETTINGS if name in os.environ)
    return " ".join(filter(None, [precision, named, "" if torch._C._get_mkldnn_enabled() else "no oneDNN"]))


def processor() -> str:
    """The CPU's name and the instructions that torch uses on it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        found = dict(line.split(":", 1) for line in lines[: lines.index("")] if ":" in line)
        rows = {key.strip(): value.strip() for key, value in found.items()}
        name = " ".join(rows[key] for key in ("model name", "cpu family", "model", "stepping") if key in rows)
    except (OSError, ValueError):
        import platform

        name = platform.processor() or platform.machine()
    return f"{name} {torch.backends.cpu.get_cpu_capability()}"


def lacks_bfloat16() -> str | None:
    """What the processor lacks for products in bfloat16; None where it has it."""
    cpu: Any = torch.cpu
    has = any(getattr(cpu, name, bool)() for name in ("_is_amx_tile_supported", "_is_avx512_bf16_supported"))
    if not torch.backends.mkldnn.is_available():
        return "torch was built without oneDNN"
    if not hasattr(torch.backends.mkldnn, "matmul"):
        return f"torch {torch.__version__} cannot set the precision of products apart: it needs torch 2.9 or newer"
    return None if has else f"this processor ({processor()}) has neither AMX nor AVX512-BF16"


def check_products(products: str, device: torch.device, dtype: torch.dtype = torch.float32) -> None:
    """Whether products can be made in this precision here.

    Raises:
        ModelError: they cannot; the message says what is missing.
    """
    if products not in get_args(Products):
        raise ModelError(f"products={products!r}: choose float32 or bfloat16")
    if products == "float32":
        return
    if device.type != "cpu":
        raise ModelError(f"products='bfloat16' is for CPUs, and the model is on {device}: use dtype='bfloat16' there")
    if dtype != torch.float32:
        name = str(dtype).removeprefix("torch.")
        raise ModelError(f"products='bfloat16' is for float32 models, and this one is {name}: leave products out")
    if forced() == "plain":
        raise ModelError("products='bfloat16' needs packed kernels, and AFTERWORD_KERNELS=plain forbids them: unset it")
    if missing := lacks_bfloat16():
        raise ModelError(f"products='bfloat16' cannot be had: {missing}; leave products out for exact float32")


_USERS: weakref.WeakSet[Any] = weakref.WeakSet()
_LOCK = threading.RLock()


def register_bfloat16(user: object) -> None:
    """Say that somebody makes products in bfloat16, until it is gone."""
    _USERS.add(user)


def precision_lock() -> AbstractContextManager[object]:
    """Held by each of our forwards on a CPU while anybody makes products in bfloat16.

    torch keeps the precision of float32 products for the whole process: a forward of another thread, which wants
    them exact, must not run meanwhile.
    """
    return _LOCK if _USERS else nullcontext()


@contextmanager
def in_bfloat16() -> Iterator[None]:
    """Products of float32 tensors in bfloat16, added up in float32; the setting is as it was afterwards."""
    place: Any = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    before = place.fp32_precision
    try:
        place.fp32_precision = "bf16"
        yield
    finally:
        place.fp32_precision = before
