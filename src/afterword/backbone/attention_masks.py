"""What one forward pass is made of, and what sees what in it: by the model's own rule instead of by a tensor."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from ..errors import UnsupportedModel
from .attention_views import AttentionView

FILLER = -1  # the group of what is run and never read: texts that fill a stream, a lead
CELLS = 1 << 21  # entries of a rule that are worked out at once


class OtherLayers(UnsupportedModel):
    """Not the attention layers that the self-check saw asked the seam for their attention."""

    def __init__(self, kind: str, ran: int, loaded: int) -> None:
        super().__init__(
            f"the attention layers of this {kind} are not those that it was loaded with ({ran} ran, {loaded} were "
            "loaded): save the changed model and load it anew, and call set_attn_implementation only while nobody "
            "encodes"
        )


class NoTensor(UnsupportedModel, AttributeError):
    """Something other than the seam's attention takes a `Rule` for a tensor."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"attention that is not Afterword's met Afterword's mask ({what}): call set_attn_implementation only while "
            "nobody encodes"
        )


@runtime_checkable
class AttentionReader(Protocol):
    """What reads attention as it passes: see `taps.Tap`."""

    def wants(self, layer: int) -> bool:
        """Whether this layer is to be read."""

    def read(self, view: AttentionView) -> None:
        """Read one layer over one group."""


class PackedGroup(NamedTuple):
    """Segments of one length.

    Attributes:
        group: the number of their group.
        start: where they start on the flat axis.
        segments: how many, G.
        length: how long each is, n.
        before: where p tokens lie that stand in front of each segment and are run once for all of them.
    """

    group: int
    start: int
    segments: int
    length: int
    prefix: range = range(0)


class Mask(NamedTuple):
    """What sees what in a segment.

    Attributes:
        mask: (n, p + n), or None where `causal` says it all.
        causal: each token sees itself and everything before it, no more (with mask None: else everything).
        backward: no token sees what comes after it.
    """

    allowed: Tensor | None
    causal: bool
    backward: bool


class MaskCache:
    """What sees what, kept from one forward to the next.

    A rule is recognised by its code and by every constant that it closes over, down to the functions it is made of:
    two rules of one key cannot differ. A rule that closes over anything else, a tensor for instance, is not kept.

    Args:
        limit: bytes of masks at most; the ones not asked for longest are forgotten.
    """

    def __init__(self, limit: int = 1 << 26) -> None:
        self._limit, self._bytes = limit, 0
        self._kept: OrderedDict[Hashable, Mask] = OrderedDict()
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, int]:
        """Neither masks nor locks are copied; a copy works them out for itself."""
        return {"limit": self._limit}

    def __setstate__(self, state: dict[str, int]) -> None:
        """Start anew."""
        self.__init__(state["limit"])  # type: ignore[misc]

    def __len__(self) -> int:
        """How many are kept."""
        return len(self._kept)

    def find(self, key: Hashable) -> Mask | None:
        """What was kept under a key."""
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
            return found

    def keep(self, key: Hashable, mask: Mask) -> None:
        """Keep it, and forget what has not been asked for longest; what is too large by itself is not kept."""
        if _size(mask) > self._limit:
            return
        with self._lock:
            if key not in self._kept:
                self._kept[key] = mask
                self._bytes += _size(mask)
            while self._bytes > self._limit:
                self._bytes -= _size(self._kept.popitem(last=False)[1])


def _size(mask: Mask) -> int:
    return 256 + (0 if mask.allowed is None else mask.allowed.nbytes)


def identity(value: object) -> Hashable | None:
    """What a mask function does, as a key: its code, its constants and the functions it calls; None where unsure."""
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
        runs: the groups, as they lie on the flat axis; it begins with a whole segment, the longest of all.
        flat: whether they do; else the one run is an ordinary batch [B, n].
        both_ways: layers whose tokens also see what comes after them.
        readers: taps.
        layers: how many layers the model has, where one module serves several (ALBERT); else 0.
        masks: what sees what, as earlier forwards of the model found it.
        sinks_count: readers see shares of what a query gives to tokens and sinks; False: to tokens alone.
        seeing: while True, every layer sees both ways (a second stream, BeLLM's Eq. 5); readers rest.
        modules: the number of each attention module, by identity, in order of first call.
        order: the attention modules as they were called.
        calls: how many of these calls were not a second stream's.
    """

    runs: tuple[PackedGroup, ...]
    flat: bool = True
    both_ways: frozenset[int] = frozenset()
    readers: tuple[AttentionReader, ...] = ()
    layers: int = 0
    masks: MaskCache = field(default_factory=MaskCache)
    sinks_count: bool = True
    force_bidirectional: bool = False
    modules: dict[int, int] = field(default_factory=dict)
    order: list[int] = field(default_factory=list)
    calls: int = 0

    def enter(self, module: nn.Module) -> int:
        """The number of the layer that is being run."""
        self.order.append(id(module))
        self.calls += not self.force_bidirectional
        if self.layers:
            return (len(self.order) - 1) % self.layers
        return self.modules.setdefault(id(module), len(self.modules))


@dataclass(eq=False)
class Rule:
    """What the mask function returns: which tokens a token sees, by rule instead of by tensor.

    Two rules are equal where they are one object: a model may look for its mask in a dict or a list.

    Attributes:
        plan: the running forward's.
        sees: the model's own rule, sees(batch, head, query, key) on token indices (transformers' mask_function).
    """

    plan: Plan
    mask_function: Callable[..., Tensor]

    def __post_init__(self) -> None:
        """What was worked out; a rule that is recognised also asks earlier forwards."""
        self._key = identity(self.mask_function)
        self._masks: dict[Hashable, Mask] = {}

    def __getitem__(self, key: object) -> Rule:
        """The rule itself for a whole slice: models that borrow the keys of an earlier layer cut masks to them.

        Raises:
            UnsupportedModel: a part of it; what a cut mask means is not known.
        """
        parts = key if isinstance(key, tuple) else (key,)
        if any(part is not Ellipsis and part not in (slice(None), slice(0, None)) for part in parts):
            raise UnsupportedModel(
                f"the model cuts its attention mask: [{key}]; call set_attn_implementation only while nobody encodes"
            )
        return self

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """A rule is no mask tensor: the layer that hands it to torch has another attention by now.

        Raises:
            NoTensor: always.
        """
        raise NoTensor(getattr(function, "__name__", str(function)))

    def __getattr__(self, name: str) -> Any:
        """The same, where a layer asks for what tensors have.

        Raises:
            NoTensor: always; to ``hasattr`` it says no.
        """
        raise NoTensor(name)

    def mask(self, n: int, both_ways: bool, device: torch.device, p: int = 0) -> Mask:
        """What sees what in a segment of n tokens behind p others; the same for all segments of this length.

        Raises:
            UnsupportedModel: both ways, and what stands in front, run once for many texts, would have to see each.
        """
        if both_ways and p:
            raise UnsupportedModel(f"{p} tokens are run once for many texts: no layer sees both ways, set shares=False")
        key = (self._key, n, p, both_ways, device)
        if key not in self._masks:
            found = None if self._key is None else self.plan.masks.find(key)
            if found is None:
                with torch.inference_mode(False):  # what is kept may serve a training step later
                    found = self._build(p, p + n, both_ways, device)
                if self._key is not None:
                    self.plan.masks.keep(key, found)
            self._masks[key] = found
        return self._masks[key]

    def _build(self, p: int, n: int, both_ways: bool, device: torch.device) -> Mask:
        """Every entry is looked at: a window or a chunk may show in the last row only, a rule of one's own anywhere."""
        full, causal = True, p == 0  # no kernel has a name for the last rows of a causal mask
        for first in range(p, n, step := max(1, CELLS // n)):
            rows = torch.arange(first, min(first + step, n), device=device)
            some = self._rows(rows, n, both_ways)
            full = full and bool(some.all())
            causal = causal and bool((some == (torch.arange(n, device=device) <= rows[:, None])).all())
            if not (full or causal):
                mask = self._rows(torch.arange(p, n, device=device), n, both_ways)
                return Mask(mask, False, not bool(mask.triu(p + 1).any()))
        return Mask(None, not full, n == p + 1 or not full)

    def _rows(self, rows: Tensor, n: int, both_ways: bool) -> Tensor:
        """Some rows of the rule's mask (rows, n); both ways: what each row sees or is seen by."""
        q, k = rows[:, None], torch.arange(n, device=rows.device)[None]  # on the flat axis: its first segment
        mask: Tensor = self.mask_function(0, 0, q, k)
        if both_ways:
            mask = mask | self.mask_function(0, 0, k, q)
        return mask.expand(len(rows), n)


_PLAN: ContextVar[Plan | None] = ContextVar("afterword_plan", default=None)


@contextmanager
def running(plan: Plan) -> Iterator[Plan]:
    """Run a model under a plan; what was there before is back afterwards."""
    token = _PLAN.set(plan)
    try:
        yield plan
    finally:
        _PLAN.reset(token)


def current() -> Plan | None:
    """The plan that this thread's forward runs under."""
    return _PLAN.get()
