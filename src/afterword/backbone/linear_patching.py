"""How a linear layer, or an activation, is served in its own place, with nothing of it left behind.

A layer is served from the place where torch keeps a module's compiled call: copies and pickles leave that out, hooks
and ``forward`` stay as they are, and only the thread that is inside `patched` is served there.
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
"""Activations that oneDNN computes while a product is still in the registers, by class."""
ALONE = ("none", "")
SAMPLES = 61  # elements of a weight that are compared to notice a change through `.data`
SLOT = "_compiled_call_impl"
"""Where torch keeps what is called in a module's place; `nn.Module.__getstate__` leaves it out."""


class PackedLayer:
    """A linear layer and its packed weight, for one state of that weight.

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
        """Note the activation, in the same block, that gets what the layer gives, and nothing else does."""
        self.block, self.act, self.run = block, act, type(block).forward

    @property
    def untouched(self) -> bool:
        """Whether the weight is the same tensor as it was, and autograd knows of no change."""
        weight = self.module._parameters.get("weight")
        same = weight is self.source and type(self.module) is self.kind and weight.data_ptr() == self.at
        return same and _version(weight) == self.version

    @property
    def weight(self) -> Tensor:
        """Packed when it is first used."""
        if self._packed is None:
            self._packed = pack(self.source.T if is_transposed(self.module) else self.source)
        return self._packed

    def activation(self) -> tuple[str, str]:
        """What oneDNN does to the product: the activation's work, where nothing stands between or listens."""
        act, block = self.act, self.block
        if act is None or _altered(act) or "forward" in block.__dict__ or type(block).forward is not self.run:
            return ALONE
        return work(act) if type(act.__dict__.get(SLOT)) is _PatchedCall else ALONE

    def fits(self, x: Tensor) -> bool:
        """Whether this product can be packed; a thread that trains the same model needs what autograd knows."""
        return bool(x.dtype == self.source.dtype and x.numel() and not torch.is_grad_enabled() and self.untouched)


class Patch:
    """One forward of one thread.

    Args:
        twins: by the layer's identity.
        products: what float32 matrices are rounded to.
    """

    def __init__(self, packed: dict[int, PackedLayer], products: Products) -> None:
        self.packed, self.products = packed, products
        self.activated: Tensor | None = None
        """What a layer gave with its activation's work done, until that activation is called with it."""

    def call(self, module: nn.Module, x: Tensor) -> Tensor:
        """A linear layer, or an activation, in its own place."""
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
        """A layer as torch runs it, in the precision that was asked for."""
        if self.products == "bfloat16" and id(module) in self.packed:
            with in_bfloat16():
                return module._call_impl(*args, **kwargs)
        return module._call_impl(*args, **kwargs)


_PATCH: ContextVar[Patch | None] = ContextVar("afterword_serving", default=None)


def current_patch() -> Patch | None:
    """What this thread is served with at present."""
    return _PATCH.get()


_LOCK = threading.Lock()


class _PatchedCall:
    """What torch calls in a module's place while somebody is served there; all others get the module itself."""

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
    """Serve some modules in this thread; those that no thread is served at any more are left as they were."""
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
    """Whether a layer is served: torch's Linear itself, or transformers' Conv1D, with a weight of its own."""
    kind = type(module) is nn.Linear or is_transposed(module)
    return kind and module._parameters.get("weight") is not None and module.weight.dim() == 2


def is_transposed(module: Any) -> bool:
    """Whether a layer keeps its weight as (in, out), as GPT-2's do."""
    return type(module).__name__ == "Conv1D"


def shape_of(module: Any) -> Shape:
    """A layer's shape."""
    transposed = is_transposed(module)
    outputs, inputs = reversed(module.weight.shape) if transposed else module.weight.shape
    return Shape(int(inputs), int(outputs), module.bias is not None, transposed)


def _version(weight: Tensor) -> int:
    return 0 if weight.is_inference() else weight._version


def _altered(module: nn.Module) -> bool:
    """Whether somebody listens at a module, or has put another forward in place of its own."""
    return bool(
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
        or "forward" in module.__dict__
        or torch_module._has_any_global_hook()
    )


def work(act: Any) -> tuple[str, str]:
    """How oneDNN names an activation; torch's own GELU says itself which it is."""
    name, how = FUSED[type(act).__name__]
    return name, getattr(act, "approximate", how)
