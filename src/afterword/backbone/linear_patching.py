"""Patch linear layers and activations for a while: calls of the module run packed weights instead.

The patch is in the attribute where torch keeps a module's compiled call. Copies and pickles leave that attribute out,
hooks and ``forward`` stay as they are, and only a thread that is inside `patched` runs the patch.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module

from .linear_probe import Shape
from .linear_products import Products, in_bfloat16, pack, packed_linear

FUSED = {
    "GELUActivation": ("gelu", "none"),
    "GELU": ("gelu", "none"),
    "NewGELUActivation": ("gelu", "tanh"),
    "GELUTanh": ("gelu", "tanh"),
    "FastGELUActivation": ("gelu", "tanh"),
    "SiLUActivation": ("swish", ""),
    "SiLU": ("swish", ""),
}
"""Activations, by class, that oneDNN fuses with the product of a linear layer."""
ALONE = ("none", "")
SAMPLES = 61  # elements of a weight that are compared to detect a change through `.data`
SLOT = "_compiled_call_impl"
"""The attribute that torch calls instead of a module, if it is set; `nn.Module.__getstate__` leaves it out."""


class PackedLayer:
    """A linear layer with its packed weight, valid until the weight changes.

    Args:
        module: the layer.
    """

    def __init__(self, module: Any) -> None:
        self.module, self.kind = module, type(module)
        self.source = module._parameters["weight"]
        self.version, self.at = _version(self.source), self.source.data_ptr()
        w = self.source.detach()
        flat = w.view(-1) if w.is_contiguous() else w.T.view(-1) if w.T.is_contiguous() else w[:, 0]
        self.sample = flat[:: max(1, len(flat) // SAMPLES)][:SAMPLES]
        self.copy = self.sample.clone()
        self.block: Any = None
        self.act: Any = None
        self.run: Any = None
        self._packed: Tensor | None = None

    def fuse(self, block: nn.Module, act: nn.Module) -> None:
        """Fuse an activation of the same block into the layer: it must be the only use of the layer's output."""
        self.block, self.act, self.run = block, act, type(block).forward

    @property
    def untouched(self) -> bool:
        """Whether the weight is still the same tensor, in the same version."""
        weight = self.module._parameters.get("weight")
        same = weight is self.source and type(self.module) is self.kind and weight.data_ptr() == self.at
        return same and _version(weight) == self.version

    @property
    def weight(self) -> Tensor:
        """The packed weight; it is packed at its first use."""
        if self._packed is None:
            self._packed = pack(self.source.T if is_transposed(self.module) else self.source)
        return self._packed

    def activation(self) -> tuple[str, str]:
        """The activation that oneDNN fuses with the product; none if the activation or the block has been changed."""
        act, block = self.act, self.block
        if act is None or _altered(act) or "forward" in block.__dict__ or type(block).forward is not self.run:
            return ALONE
        return work(act) if type(act.__dict__.get(SLOT)) is _PatchedCall else ALONE

    def fits(self, x: Tensor) -> bool:
        """Whether this product can use the packed weight: without gradients, with the same data type and weight."""
        return bool(x.dtype == self.source.dtype and x.numel() and not torch.is_grad_enabled() and self.untouched)


class Patch:
    """What the patched modules of one thread's forward run.

    Args:
        packed: packed layers, by the identity of the layer.
        products: the precision in which float32 matrices are multiplied.
    """

    def __init__(self, packed: dict[int, PackedLayer], products: Products) -> None:
        self.packed, self.products = packed, products
        self.activated: Tensor | None = None
        """The output of a layer with a fused activation, until the activation's module is called with it."""

    def call(self, module: nn.Module, x: Tensor) -> Tensor:
        """The output of a patched linear layer or activation."""
        layer = self.packed.get(id(module))
        if layer is None:
            return module._call_impl(x)  # type: ignore[no-any-return]
        if not layer.fits(x):
            return self.call_unpatched(module, x)  # type: ignore[no-any-return]
        activation = layer.activation()
        if self.products == "bfloat16":
            with in_bfloat16():
                out = packed_linear(x, layer.weight, module.bias, activation)  # type: ignore[arg-type]
        else:
            out = packed_linear(x, layer.weight, module.bias, activation)  # type: ignore[arg-type]
        if activation is not ALONE:
            self.activated = out
        return out

    def call_unpatched(self, module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        """The output of the module itself, in the precision of `products`."""
        if self.products == "bfloat16" and id(module) in self.packed:
            with in_bfloat16():
                return module._call_impl(*args, **kwargs)
        return module._call_impl(*args, **kwargs)


_PATCH: ContextVar[Patch | None] = ContextVar("afterword_serving", default=None)


def current_patch() -> Patch | None:
    """The patch that this thread is inside of, or None."""
    return _PATCH.get()


_LOCK = threading.Lock()


class _PatchedCall:
    """What torch calls instead of a patched module; threads without a patch get the module itself."""

    __slots__ = ("module", "users")

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.users: set[object] = set()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        patched = _PATCH.get()
        if patched is None:
            return self.module._call_impl(*args, **kwargs)
        if len(args) == 1 and not kwargs:
            x = args[0]
            if x is patched.activated and id(self.module) not in patched.packed:
                patched.activated = None
                return x
            if not _altered(self.module):
                return patched.call(self.module, x)
        return patched.call_unpatched(self.module, *args, **kwargs)


@contextmanager
def patched(patch: Patch, modules: Sequence[nn.Module]) -> Iterator[Patch]:
    """Patch some modules for this thread; those that no thread uses any more are restored afterwards."""
    user = object()
    try:
        with _LOCK:
            for module in modules:
                if module.__dict__.get(SLOT) is None:
                    module.__dict__[SLOT] = _PatchedCall(module)
                entry = module.__dict__[SLOT]
                if type(entry) is _PatchedCall:
                    entry.users.add(user)
        token = _PATCH.set(patch)
        try:
            yield patch
        finally:
            _PATCH.reset(token)
    finally:
        with _LOCK:
            for module in modules:
                entry = module.__dict__.get(SLOT)
                if type(entry) is _PatchedCall:
                    entry.users.discard(user)
                    if not entry.users:
                        del module.__dict__[SLOT]


def is_linear(module: Any) -> bool:
    """Whether a module can be patched: torch's Linear (no subclass) or transformers' Conv1D, with a weight."""
    kind = type(module) is nn.Linear or is_transposed(module)
    return kind and module._parameters.get("weight") is not None and module.weight.dim() == 2


def is_transposed(module: Any) -> bool:
    """Whether a layer keeps its weight as (in, out), as in GPT-2."""
    return type(module).__name__ == "Conv1D"


def shape_of(module: Any) -> Shape:
    """The shape of a linear layer."""
    transposed = is_transposed(module)
    outputs, inputs = reversed(module.weight.shape) if transposed else module.weight.shape
    return Shape(int(inputs), int(outputs), module.bias is not None, transposed)


def _version(weight: Tensor) -> int:
    return 0 if weight.is_inference() else weight._version


def _altered(module: nn.Module) -> bool:
    """Whether a module has hooks, or its ``forward`` was replaced."""
    return bool(
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
        or "forward" in module.__dict__
        or torch_module._has_any_global_hook()
    )


def work(act: Any) -> tuple[str, str]:
    """The name of an activation in oneDNN; torch's GELU has an attribute that says which variant it is."""
    name, how = FUSED[type(act).__name__]
    return name, getattr(act, "approximate", how)
