"""The plan of one forward pass, and its attention masks: each is computed from the model's own mask function."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..errors import UnsupportedModel
from .attention_taps import Tap
from .bidirectional import Sight

FILLER = -1  # group number of a shared prefix, which belongs to no group
CELLS = 1 << 21  # entries of a mask that are computed at once


class PackedGroup(NamedTuple):
    """Segments of one length, one after another in a packed batch."""

    group: int
    """The number of their group in the batch."""
    start: int
    """Index of their first token in the packed batch."""
    segments: int
    """G."""
    length: int
    """The tokens of each, n, without a shared prefix."""
    prefix: range = range(0)
    """Indices of the p tokens of the shared prefix, which run once for all segments; empty for none."""


class Mask(NamedTuple):
    """The attention mask of a segment."""

    allowed: Tensor | None
    """Whether each query may attend to each key (n, p + n); None where `causal` alone decides."""
    causal: bool
    """With `allowed` None, True for a causal mask, and False where all tokens attend to all."""
    backward: bool
    """No token attends to a later one."""


class MaskCache:
    """Attention masks, kept from one forward to the next; all are dropped when they would take more than `limit` bytes.

    The key of a mask function is its code and every constant in its closure, down to the functions that it calls, so
    two functions with one key cannot differ. The masks of a function that closes over anything else, such as a
    tensor, are not kept.
    """

    def __init__(self, limit: int = 1 << 26) -> None:
        self.limit, self.size = limit, 0
        self.masks: dict[Hashable, Mask] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy no masks."""
        return MaskCache, (self.limit,)

    def keep(self, key: Hashable, mask: Mask) -> None:
        """Keep a mask, unless it is larger than the limit."""
        size = 256 + (0 if mask.allowed is None else mask.allowed.nbytes)
        if self.size + size > self.limit:
            self.masks, self.size = {}, 0
        if size <= self.limit:
            self.masks[key] = mask
            self.size += size


def identity(value: object) -> Hashable | None:
    """A key for what a mask function does: its code, its constants and the functions it calls; None if unsure."""
    if value is None or type(value) in (bool, int, float, str):
        return type(value), value
    if type(value) is tuple:
        return _all(tuple, value)
    if type(value) is not FunctionType or value.__kwdefaults__ or value.__dict__:
        return None
    code = value.__code__
    names = [value.__globals__[name] for name in code.co_names if name in value.__globals__]
    called = [v for v in names if not isinstance(v, ModuleType)]
    if value in called or any(isinstance(c, CodeType) for c in code.co_consts):  # calls itself, or makes functions
        return None
    return _all(code, (*(cell.cell_contents for cell in value.__closure__ or ()), *(value.__defaults__ or ()), *called))


def _all(kind: Hashable, parts: tuple[object, ...]) -> Hashable | None:
    inner = tuple(identity(part) for part in parts)
    return None if any(part is None for part in inner) else (kind, inner)


@dataclass
class Plan:
    """One forward pass.

    Attributes:
        groups: of the packed batch; the first tokens are a complete segment, the longest.
        flat: True for a packed batch; False for one group as an ordinary batch (B, n).
        both_ways: the layers with bidirectional attention.
        readers: what reads attention while the model runs.
        layers: the number of layers, if several of them share one attention module (ALBERT); else 0.
        masks: attention masks that earlier forwards of the model computed.
        sinks_count: the weights that taps read sum to 1 with the attention sinks; False: without them.
        sight: the temperature of attention, and the fate of a window in bidirectional layers.
        force_bidirectional: every layer is bidirectional for now (the second stream of BeLLM's Equation 5).
        modules, order: identities of the attention modules: numbered by first call, and in the order of calls.
        calls: the number of these calls outside a second stream.
    """

    groups: tuple[PackedGroup, ...]
    flat: bool = True
    both_ways: frozenset[int] = frozenset()
    readers: tuple[Tap, ...] = ()
    layers: int = 0
    masks: MaskCache = field(default_factory=MaskCache)
    sinks_count: bool = True
    sight: Sight = Sight()
    force_bidirectional: bool = False
    modules: dict[int, int] = field(default_factory=dict)
    order: list[int] = field(default_factory=list)
    calls: int = 0

    def enter(self, module: nn.Module) -> int:
        """Record a call of an attention module; return the number of its layer."""
        self.order.append(id(module))
        self.calls += not self.force_bidirectional
        if self.layers:
            return (len(self.order) - 1) % self.layers
        return self.modules.setdefault(id(module), len(self.modules))


@dataclass(eq=False)
class Rule:
    """What our mask interface returns in place of a mask tensor: the plan, and the model's own mask function.

    Equality is identity, since a model may look for its mask in a dict or a list.

    Attributes:
        plan: of the running forward.
        mask_function: the model's own, mask_function(batch, head, query, key) on token indices (transformers).
    """

    plan: Plan
    mask_function: Callable[..., Tensor]

    def __post_init__(self) -> None:
        """Compute the key under which masks are kept for later forwards."""
        self._key = identity(self.mask_function)
        self._masks: dict[Hashable, Mask] = {}

    def __getitem__(self, key: object) -> Rule:
        """The rule itself for a full slice: models that reuse the keys of an earlier layer slice their masks.

        Raises:
            UnsupportedModel: any other slice, since only the model knows what it would mean.
        """
        parts = key if isinstance(key, tuple) else (key,)
        if any(part is not Ellipsis and part not in (slice(None), slice(0, None)) for part in parts):
            raise UnsupportedModel(f"the model slices its attention mask: [{key}]")
        return self

    def mask(self, n: int, both_ways: bool, device: torch.device, p: int = 0) -> Mask:
        """The mask of a segment of n tokens after a shared prefix of p tokens, which no bidirectional layer has."""
        if both_ways and self.plan.sight.window == "drop":
            return Mask(None, False, n == 1)
        key = (self._key, n, p, both_ways, device)
        if key not in self._masks:
            mask = None if self._key is None else self.plan.masks.masks.get(key)
            if mask is None:
                with torch.inference_mode(False):  # a training step may use it later
                    mask = self._build(p, p + n, both_ways, device)
                if self._key is not None:
                    self.plan.masks.keep(key, mask)
            self._masks[key] = mask
        return self._masks[key]

    def _build(self, p: int, n: int, both_ways: bool, device: torch.device) -> Mask:
        """Compute every entry: a window or a chunk may change the last row only."""
        full, causal = True, p == 0  # the kernels' causal flag does not mean the last rows of a causal mask
        for first in range(p, n, step := max(1, CELLS // n)):
            rows = torch.arange(first, min(first + step, n), device=device)
            part = self._rows(rows, n, both_ways)
            full = full and bool(part.all())
            causal = causal and bool((part == (torch.arange(n, device=device) <= rows[:, None])).all())
            if not (full or causal):
                allowed = self._rows(torch.arange(p, n, device=device), n, both_ways)
                return Mask(allowed, False, not bool(allowed.triu(p + 1).any()))
        return Mask(None, not full, n == p + 1 or not full)

    def _rows(self, rows: Tensor, n: int, both_ways: bool) -> Tensor:
        """Some rows of the mask (rows, n); bidirectional: the mask or its transpose allows it."""
        q, k = rows[:, None], torch.arange(n, device=rows.device)[None]  # indices in the batch's first segment
        allowed: Tensor = self.mask_function(0, 0, q, k)
        if both_ways:
            allowed = allowed | self.mask_function(0, 0, k, q)
        return allowed.expand(len(rows), n)


_PLAN: ContextVar[Plan | None] = ContextVar("afterword_plan", default=None)


@contextmanager
def running(plan: Plan) -> Iterator[Plan]:
    """Run a model under a plan, in this thread; afterwards the former plan is restored."""
    token = _PLAN.set(plan)
    try:
        yield plan
    finally:
        _PLAN.reset(token)


def current() -> Plan | None:
    """The plan of this thread's running forward, or None."""
    return _PLAN.get()
