"""Changes to a model for one forward of the self-check, to show errors that short texts would not, and comparisons."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map, tree_map_only

from .attention_taps import Tap
from .attention_views import AttentionView
from .introspection import WINDOWS, text_config

AFAR = 1 << 20  # beyond any length at which a model changes, and exact in float32
SHORT = 5  # tokens of a shortened window
HALF = (torch.float16, torch.bfloat16)

COUNTING = frozenset("arange cumsum linspace".split())
"""Functions of torch by which a model counts tokens."""

INDEXING = frozenset(
    "__getitem__ __setitem__ index_select index_add index_add_ index_copy index_copy_ index_fill index_fill_ index_put "
    "index_put_ gather scatter scatter_ scatter_add scatter_add_ scatter_reduce scatter_reduce_ take "
    "take_along_dim embedding one_hot put_".split()
)
"""Functions that use a number as an index into a tensor, which must not change."""


class Reached(Exception):
    """A forward has reached the module at which it is stopped."""


@contextmanager
def stop_before(module: nn.Module) -> Iterator[None]:
    """Stop forwards in front of a module, with `Reached`."""

    def stop(*_: Any) -> None:
        raise Reached

    with module.register_forward_pre_hook(stop):
        yield


@contextmanager
def counting_from_afar(length: int) -> Iterator[None]:
    """Everything that counts the tokens of a packed input from its start counts from `AFAR`.

    Where a model computes positions from indices in the packed input, instead of indices in the text, its output
    changes. Indices themselves stay as they are: a number is moved when it is compared or becomes floating point, not
    when it is used as an index.

    Args:
        length: of the packed input, in tokens.
    """
    with _Counting(length):
        yield


class _Counting(TorchFunctionMode):
    def __init__(self, length: int) -> None:
        super().__init__()
        self.length = length

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if getattr(func, "__name__", "") in COUNTING and self._counts(out):
            return out + AFAR if out.is_floating_point() else out.as_subclass(_Place)
        return out

    def _counts(self, out: Any) -> bool:
        """Whether a tensor goes up by one from token to token, over the whole input."""
        if type(out) is not Tensor or not out.ndim or out.shape[-1] != self.length or self.length < 2:
            return False
        return bool((out.diff(dim=-1) == 1).all())


class _Place(Tensor):
    """Integers that count tokens; `AFAR` is added as soon as they are used for more than indexing."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, name = kwargs or {}, getattr(func, "__name__", "")
        with torch._C.DisableTorchFunctionSubclass():
            if name in INDEXING:
                out = func(*args, **kwargs)
                return out.as_subclass(cls) if isinstance(args[0], cls) and _whole(out) else out
            inplace = name.endswith("_") and not name.endswith("__") and not isinstance(args[0], cls)
            result: Any = None if inplace else func(*args, **kwargs)
            if not inplace and not isinstance(result, Tensor):
                return result
            moved = tree_map_only(cls, lambda t: t.as_subclass(Tensor) + AFAR, (args, kwargs))
            afar = func(*moved[0], **moved[1])
            if _whole(result) and not torch.equal(result, afar):  # a distance is the same everywhere
                return result.as_subclass(cls)
            return afar


def _whole(out: Any) -> bool:
    """Whether a value is a tensor of integers."""
    return isinstance(out, Tensor) and not (out.is_floating_point() or out.dtype == torch.bool)


@contextmanager
def short_windows(model: Any, longest: int) -> Iterator[list[str]]:
    """Shorten attention windows and chunks that are longer than `longest`; yields the names of their settings."""
    config = text_config(model.config)
    own = {n: v for n, v in vars(config).items() if n in WINDOWS and isinstance(v, int) and v > longest}
    try:
        for name in own:
            setattr(config, name, SHORT)
        yield list(own)
    finally:
        for name, value in own.items():
            setattr(config, name, value)


class InFloat32(TorchFunctionMode):
    """Every operation of torch in float32, whatever the weights are stored in; one weight at a time is converted.

    Weights keep their data. In half precision two correct kernels differ by up to 0.16, which would hide a wrong mask.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a function with float32 in place of half precision, in its tensors, its data types and its results."""
        kwargs, name = kwargs or {}, getattr(func, "__name__", "")
        if name not in ("__get__", "embedding"):  # a tensor's attributes; and rows of a table, converted afterwards
            args, kwargs = tree_map(_float32, (args, kwargs))
        return tree_map(_float32, func(*args, **kwargs))


def _float32(value: Any) -> Any:
    """A tensor or a data type in float32, if it is in half precision; else the value itself."""
    if isinstance(value, Tensor):
        return value.float() if value.dtype in HALF else value
    return torch.float32 if isinstance(value, torch.dtype) and value in HALF else value


class Matrices(Tap):
    """Whole attention matrices of short texts, for the self-check only. Result: (G, L, H, n, n)."""

    def __init__(self) -> None:
        self.matrices: list[Tensor] = []

    def read(self, view: AttentionView) -> None:
        """Keep the matrix; layers come in order."""
        n = view.length
        weights = view.log_weights(slice(0, n), slice(0, n), slice(0, view.heads)).exp()
        self.matrices.append(weights.tril() if view.causal else weights)

    def result(self, group: int) -> Tensor:
        """(G, L, H, n, n)."""
        return torch.stack(self.matrices, 1)


def proper(weights: Any, sinks: bool = False) -> bool:
    """Whether each row of an attention matrix sums to 1, or to less if a sink or a soft prompt takes a share."""
    if not isinstance(weights, Tensor) or weights.ndim != 4:
        return False
    total = weights.float().sum(-1)
    if sinks:
        return bool((total <= 1 + 1e-3).all() and (total > 0).all() and (weights >= 0).all())
    return torch.allclose(total, torch.ones_like(total), atol=1e-3)


def heads_of(matrices: Sequence[Tensor], n: int) -> int:
    """The number of heads of the attention matrices of a text of n tokens; 0 if they are not such, or differ.

    A soft prompt in front of the text (CPM-Ant) takes a share of each row.
    """
    heads = {a.shape[1] if a.ndim == 4 and a.shape[2:] == (n, n) and proper(a, True) else 0 for a in matrices}
    return max(heads) if len(heads) == 1 else 0


def difference(got: Sequence[Tensor], wanted: Sequence[Tensor]) -> float:
    """The largest difference, relative to the largest value; infinite if any value is NaN or infinite."""
    largest = float(torch.stack([(a - b).abs().max() for a, b in zip(got, wanted, strict=True)]).max()) / size(wanted)
    return largest if math.isfinite(largest) else math.inf


def size(states: Sequence[Tensor]) -> float:
    """The largest absolute value."""
    return max(float(s.abs().max()) for s in states)


def first_line(error: Exception) -> str:
    """The first line of an error's message."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{lines[0] if lines else type(error).__name__:.250}"
