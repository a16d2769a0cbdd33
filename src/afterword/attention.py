"""The seam: one attention function and one mask function, registered with transformers under one name.

The mask function returns no tensor but a `Rule`: the running `Plan` and the model's own rule of what sees what.
Models hand it untouched to every layer, so the plan reaches each of them without a keyword, also when gradient
checkpointing runs a layer again in another thread. The attention function runs each group of equal-length
segments by itself: tokens of two texts never meet, and nothing is padded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface

from .errors import UnsupportedModel
from .views import AttentionView, ScoreView

NAME = "afterword"

HARMLESS = frozenset(
    "sliding_window deterministic position_ids output_attentions output_hidden_states output_router_logits use_cache "
    "return_dict cache_position num_items_in_batch".split()
)
"""Extras that layers pass along and that never change attention: the rule already holds the window."""

BALLAST = -1  # the group of what is run and never read: texts that fill a stream, a lead
CELLS = 1 << 21  # entries of a rule, or of a head's scores, that are worked out at once


@runtime_checkable
class Reader(Protocol):
    """What reads attention as it passes: see `taps.Tap`."""

    def wants(self, layer: int) -> bool:
        """Whether this layer is to be read."""

    def read(self, view: AttentionView) -> None:
        """Read one layer over one group."""


class Run(NamedTuple):
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
    before: range = range(0)


@dataclass
class Plan:
    """One forward pass.

    Attributes:
        runs: the groups, as they lie on the flat axis; it begins with a whole segment, the longest of all.
        flat: whether they do; else the one run is an ordinary batch [B, n].
        both_ways: layers whose tokens also see what comes after them.
        readers: taps.
        layers: how many layers the model has, where one module serves several (ALBERT); else 0.
        seeing: while True, every layer sees both ways (a second stream, BeLLM's Eq. 5); readers rest.
        modules: the number of each attention module, by identity, in order of first call.
        order: the attention modules as they were called.
    """

    runs: tuple[Run, ...]
    flat: bool = True
    both_ways: frozenset[int] = frozenset()
    readers: tuple[Reader, ...] = ()
    layers: int = 0
    seeing: bool = False
    modules: dict[int, int] = field(default_factory=dict)
    order: list[int] = field(default_factory=list)

    def enter(self, module: nn.Module) -> int:
        """The number of the layer that is being run."""
        self.order.append(id(module))
        if self.layers:
            return (len(self.order) - 1) % self.layers
        return self.modules.setdefault(id(module), len(self.modules))


class Seen(NamedTuple):
    """What sees what in a segment.

    Attributes:
        mask: (n, p + n), or None where `causal` says it all.
        causal: each token sees itself and everything before it, no more (with mask None: else everything).
        backward: no token sees what comes after it.
    """

    mask: Tensor | None
    causal: bool
    backward: bool


@dataclass(frozen=True)
class Rule:
    """What the mask function returns: which tokens a token sees, by rule instead of by tensor.

    Attributes:
        plan: the running forward's.
        sees: the model's own rule, sees(batch, head, query, key) on token indices (transformers' mask_function).
        cache: what was worked out, by n, p and whether both ways.
    """

    plan: Plan
    sees: Callable[..., Tensor]
    cache: dict[tuple[int, int, bool], Seen] = field(default_factory=dict)

    def of(self, n: int, both_ways: bool, device: torch.device, p: int = 0) -> Seen:
        """What sees what in a segment of n tokens behind p others; the same for all segments of this length.

        Raises:
            UnsupportedModel: both ways, and what stands in front, run once for many texts, would have to see each.
        """
        if both_ways and p:
            raise UnsupportedModel(f"{p} tokens are run once for many texts: no layer sees both ways, set shares=False")
        if (n, p, both_ways) not in self.cache:
            self.cache[n, p, both_ways] = self._seen(p, p + n, both_ways, device)
        return self.cache[n, p, both_ways]

    def _seen(self, p: int, n: int, both_ways: bool, device: torch.device) -> Seen:
        """Every entry is looked at: a window or a chunk may show in the last row only, a rule of one's own anywhere."""
        full, causal = True, p == 0  # no kernel has a name for the last rows of a causal mask
        for first in range(p, n, step := max(1, CELLS // n)):
            rows = torch.arange(first, min(first + step, n), device=device)
            some = self._rows(rows, n, both_ways)
            full = full and bool(some.all())
            causal = causal and bool((some == (torch.arange(n, device=device) <= rows[:, None])).all())
            if not (full or causal):
                mask = self._rows(torch.arange(p, n, device=device), n, both_ways)
                return Seen(mask, False, not bool(mask.triu(p + 1).any()))
        return Seen(None, not full, n == p + 1 or not full)

    def _rows(self, rows: Tensor, n: int, both_ways: bool) -> Tensor:
        """Some rows of the rule's mask (rows, n); both ways: what each row sees or is seen by."""
        q, k = rows[:, None], torch.arange(n, device=rows.device)[None]  # on the flat axis: its first segment
        seen: Tensor = self.sees(0, 0, q, k)
        if both_ways:
            seen = seen | self.sees(0, 0, k, q)
        return seen.expand(len(rows), n)


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


def rule(mask_function: Callable[..., Tensor], **_: Any) -> Rule:
    """The registered mask function (transformers' AttentionMaskInterface)."""
    plan = _PLAN.get()
    if plan is None:
        raise RuntimeError(
            "this model runs inside an afterword.Encoder; to call it yourself: model.set_attn_implementation('sdpa')"
        )
    return Rule(plan, mask_function)


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: object,
    scaling: float | None = None,
    dropout: float = 0.0,
    is_causal: bool | None = None,
    *,
    position_bias: Tensor | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **extra: Any,
) -> tuple[Tensor, None]:
    """The registered attention function (transformers' AttentionInterface).

    Args:
        module: the attention layer; its identity numbers it.
        query: (B, H, N, d).
        key, value: (B, K, N, d), not repeated for grouped queries.
        attention_mask: the `Rule` that our mask function made.
        scaling: as the model gives it; None = d ** -0.5.
        dropout: probability, in training.
        is_causal: not read: the rule says it.
        position_bias: T5's relative bias (1, H, N, N); it depends on distances only.
        softcap: Gemma 2's.
        s_aux: gpt-oss' sinks (H,).
        extra: whatever else the layer passes; what is not known to be harmless raises.

    Returns:
        (B, N, H, d) and None for the weights.
    """
    if not isinstance(attention_mask, Rule):
        raise UnsupportedModel(f"{type(module).__name__} does not hand on the mask that the mask interface made")
    if unknown := sorted(k for k, v in extra.items() if v is not None and k not in HARMLESS):
        raise UnsupportedModel(f"{type(module).__name__} passes {', '.join(unknown)}, which may change attention")
    plan, scale = attention_mask.plan, query.shape[-1] ** -0.5 if scaling is None else scaling
    layer = plan.enter(module)
    readers = () if plan.seeing else tuple(r for r in plan.readers if r.wants(layer))
    special = (position_bias, softcap, s_aux)
    out = []
    for number, start, count, n, before in plan.runs:
        q, k, v = ((_cut(t, start, count, n) if plan.flat else t) for t in (query, key, value))
        if before:
            k, v = _behind(key, before, k), _behind(value, before, v)
        seen = attention_mask.of(n, plan.seeing or layer in plan.both_ways, q.device, len(before))
        o, lse = _attend(q, k, v, seen, scale, dropout, *special, want_lse=bool(readers))
        if readers and number != BALLAST:
            view = _view(layer, number, q, k, scale, seen, lse, *special)
            with torch.autocast(q.device.type, enabled=False):  # what is read is read in float32
                for reader in readers:
                    reader.read(view)
        o = o.transpose(1, 2)
        out.append(o.reshape(1, count * n, *o.shape[2:]) if plan.flat else o)
    return (torch.cat(out, 1) if len(out) > 1 else out[0]).contiguous(), None


def _cut(flat: Tensor, start: int, count: int, n: int) -> Tensor:
    """A group's part of (1, H, N, d) as (G, H, n, d), without a copy."""
    group: Tensor = flat[0, :, start : start + count * n].unflatten(1, (count, n))
    return group.transpose(0, 1)


def _behind(flat: Tensor, before: range, own: Tensor) -> Tensor:
    """Keys or values (G, K, n, d) and, in front of each segment's own, those that it shares: (G, K, p + n, d)."""
    shared = flat[:, :, before.start : before.stop].expand(len(own), -1, -1, -1)
    return torch.cat([shared, own], 2)


def _view(
    layer: int,
    group: int,
    q: Tensor,
    k: Tensor,
    scaling: float,
    seen: Seen,
    lse: Tensor | None,
    bias: Tensor | None,
    softcap: float | None,
    sinks: Tensor | None,
) -> ScoreView:
    n = q.shape[2]
    bias = None if bias is None else bias[..., :n, :n]
    return ScoreView(layer, group, seen.backward, q, k, scaling, seen.mask, bias, softcap, sinks, lse)


def _attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    seen: Seen,
    scaling: float,
    dropout: float,
    bias: Tensor | None,
    softcap: float | None,
    sinks: Tensor | None,
    want_lse: bool,
) -> tuple[Tensor, Tensor | None]:
    """Attention over one group (G, H, n, d) and, where it is to be had for nothing, its log-sum-exp."""
    n = q.shape[2]
    if softcap is not None or sinks is not None:
        return _plainly(q, k, v, _additive(q, k, seen, bias), scaling, dropout, softcap, sinks, want_lse)
    mask, causal = seen.mask, seen.causal and n > 1
    if bias is not None:
        mask, causal = _additive(q, k, seen, bias), False
    if want_lse and _fused_gives_lse(q, v, dropout) and bias is None:
        added = None if mask is None else _additive(q, k, seen, None)
        out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            q, k, v, 0.0, causal, attn_mask=added, scale=scaling
        )
        return out, lse
    grouped = q.shape[1] != k.shape[1]
    out = F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, dropout_p=dropout, is_causal=causal, scale=scaling, enable_gqa=grouped
    )
    return out, None


def _fused_gives_lse(q: Tensor, v: Tensor, dropout: float) -> bool:
    """Whether the CPU's fused kernel takes these tensors; it knows no dropout and one head width only."""
    return q.device.type == "cpu" and q.shape[-1] == v.shape[-1] and dropout == 0.0 and not torch.is_grad_enabled()


def _additive(q: Tensor, k: Tensor, seen: Seen, bias: Tensor | None) -> Tensor:
    """A float mask (n, p + n) in q's dtype that adds the bias and closes what is not seen."""
    n, keys = q.shape[2], k.shape[2]
    mask = seen.mask
    if seen.causal:
        mask = torch.ones(n, n, dtype=torch.bool, device=q.device).tril()
    added = torch.zeros(n, keys, dtype=q.dtype, device=q.device)
    if mask is not None:
        added = added.masked_fill(~mask, -math.inf)
    return added[None, None] if bias is None else added + bias[..., keys - n : keys, :keys].to(q.dtype)


def _plainly(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    added: Tensor,
    scaling: float,
    dropout: float,
    softcap: float | None,
    sinks: Tensor | None,
    want_lse: bool,
) -> tuple[Tensor, Tensor | None]:
    """What no fused kernel has, a softcap (Gemma 2) and attention sinks (gpt-oss), some rows at a time."""
    n, keys, per = q.shape[2], k.shape[2], q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(per, 1), v.repeat_interleave(per, 1)
    out, lse = [], []
    for first in range(0, n, step := max(16, CELLS // (keys * q.shape[1]))):
        part = slice(first, first + step)
        s = q[:, :, part] @ k.mT * scaling
        want_lse = want_lse and s.dtype in (torch.float32, torch.float64)  # a half's would miss by its last bit
        if softcap is not None:
            s = torch.tanh(s / softcap) * softcap
        s = s + added[:, :, part]
        if sinks is not None:  # one more column, that takes weight and gives nothing
            s = torch.cat([s, sinks.view(1, -1, 1, 1).expand(*s.shape[:3], 1).to(s.dtype)], -1)
        if want_lse:
            lse.append(s.logsumexp(-1))
        p = s.softmax(-1, dtype=s.dtype if s.dtype == torch.float64 else torch.float32).to(v.dtype)[..., :keys]
        out.append(F.dropout(p, dropout) @ v)
    return torch.cat(out, 2), torch.cat(lse, 2) if want_lse else None


AttentionInterface.register(NAME, attend)
AttentionMaskInterface.register(NAME, rule)
