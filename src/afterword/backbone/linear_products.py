"""Matrix products of linear layers on a CPU: torch's own, or oneDNN's with packed weights; and their precision.

The operators are private to torch, so `linear_probe` tries them before they are used.
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
"""CPU kernels compute this many rows at a time; for fewer they use a different kernel, which rounds differently."""

Kernel = Literal["plain", "packed"]
Products = Literal["float32", "bfloat16"]
"""The precision to which float32 matrices are rounded in a product; sums are float32 in both."""

SETTINGS = (
    "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "ONEDNN_DEFAULT_FPMATH_MODE", "MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS",
)  # fmt: skip
"""Environment variables on which the choice of kernels depends."""


def forced() -> Kernel | None:
    """The kernel that ``AFTERWORD_KERNELS`` names; None = the probe chooses."""
    named = os.environ.get("AFTERWORD_KERNELS")
    return named if named in get_args(Kernel) else None  # type: ignore[return-value]


def pack(weight: Tensor) -> Tensor:
    """A weight (out, in) packed in the order that oneDNN's kernel reads."""
    return torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous())  # type: ignore[no-any-return]


def packed_linear(x: Tensor, weight: Tensor, bias: Tensor | None, then: tuple[str, str] = ("none", "")) -> Tensor:
    """``then(x @ weight.T + bias)`` (..., out), with a weight from `pack`."""
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, then[0], [], then[1])  # type: ignore[no-any-return]


def plain_linear(x: Tensor, weight: Tensor, bias: Tensor | None, transposed: bool) -> Tensor:
    """The product as ``nn.Linear`` computes it, or, with a weight (in, out), transformers' ``Conv1D``."""
    if not transposed:
        return F.linear(x, weight, bias)
    flat = x.view(-1, x.shape[-1])
    out = flat @ weight if bias is None else torch.addmm(bias, flat, weight)
    return out.view(*x.shape[:-1], -1)


def setting() -> str:
    """All settings of this process, besides the number of threads, on which float32 products depend."""
    backends: Any = torch.backends
    places = (backends, backends.mkldnn, getattr(backends.mkldnn, "matmul", None))
    precision = ",".join(str(getattr(place, "fp32_precision", "")) for place in places)
    named = ",".join(f"{name}={os.environ[name]}" for name in SETTINGS if name in os.environ)
    return " ".join(filter(None, [precision, named, "" if torch._C._get_mkldnn_enabled() else "no oneDNN"]))


def processor() -> str:
    """The CPU's name and the instructions that torch uses on it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        fields = dict(line.split(":", 1) for line in lines[: lines.index("")] if ":" in line)
        rows = {key.strip(): value.strip() for key, value in fields.items()}
        name = " ".join(rows[key] for key in ("model name", "cpu family", "model", "stepping") if key in rows)
    except (OSError, ValueError):
        import platform

        name = platform.processor() or platform.machine()
    return f"{name} {torch.backends.cpu.get_cpu_capability()}"


def lacks_bfloat16() -> str | None:
    """Why this machine cannot multiply in bfloat16; None if it can."""
    cpu: Any = torch.cpu
    has = any(getattr(cpu, name, bool)() for name in ("_is_amx_tile_supported", "_is_avx512_bf16_supported"))
    if not torch.backends.mkldnn.is_available():
        return "torch was built without oneDNN"
    if not hasattr(torch.backends.mkldnn, "matmul"):
        return f"torch {torch.__version__} cannot set the precision of products apart: it needs torch 2.9 or newer"
    return None if has else f"this processor ({processor()}) has neither AMX nor AVX512-BF16"


def check_products(products: str, device: torch.device, dtype: torch.dtype = torch.float32) -> None:
    """Validate that this machine can multiply in a precision.

    Raises:
        ModelError: it cannot; the message says what is missing.
    """
    if products not in get_args(Products):
        raise ModelError(f"products={products!r}: choose float32 or bfloat16")
    if products == "float32":
        return
    if device.type != "cpu":
        raise ModelError(f"products='bfloat16' is for CPUs, and the model is on {device}: use dtype='bfloat16' there")
    if dtype != torch.float32:
        name = str(dtype).removeprefix("torch.")
        raise ModelError(f"products='bfloat16' is for float32 models, and this one is {name}: leave it out")
    if forced() == "plain":
        raise ModelError("products='bfloat16' needs packed kernels, and AFTERWORD_KERNELS=plain forbids them: unset it")
    if missing := lacks_bfloat16():
        raise ModelError(f"products='bfloat16' cannot be had: {missing}; leave it out for exact float32")


_USERS: weakref.WeakSet[Any] = weakref.WeakSet()
_LOCK = threading.RLock()


def register_bfloat16(user: object) -> None:
    """Register an object that multiplies in bfloat16, for as long as it exists."""
    _USERS.add(user)


def precision_lock() -> AbstractContextManager[object]:
    """The lock that each of our forwards on a CPU holds while any model multiplies in bfloat16.

    torch's precision of float32 products is a setting of the whole process, so a forward in exact float32 must not
    run in another thread at the same time.
    """
    return _LOCK if _USERS else nullcontext()


@contextmanager
def in_bfloat16() -> Iterator[None]:
    """Multiply float32 tensors in bfloat16, with float32 sums; afterwards the setting is restored."""
    place: Any = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    before = place.fp32_precision
    try:
        place.fp32_precision = "bf16"
        yield
    finally:
        place.fp32_precision = before
