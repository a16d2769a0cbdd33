"""Our attention backend: an attention function and a mask function, registered with transformers under one name.

The mask function returns no tensor but a `Rule`: the running `Plan` and the model's own mask function. Models pass it
unchanged to every layer, so the plan reaches each layer without a keyword, also when gradient checkpointing runs a
layer again in another thread. The attention function runs each group of equal-length segments by itself, so tokens
of different texts never attend to each other, and nothing is padded. Without a plan, as when a trainer calls the
model, attention is transformers' own "sdpa": see `attention_outside`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface

from ..errors import UnsupportedModel
from . import attention_kernels as fused
from . import attention_outside as outside
from .attention_masks import FILLER, Mask, Rule, current
from .attention_views import ScoreView
from .readings import show_values

NAME = "afterword"

HARMLESS = frozenset(
    "sliding_window deterministic position_ids output_attentions output_hidden_states output_router_logits use_cache "
    "return_dict cache_position num_items_in_batch".split()
)
"""Extra arguments of layers that never change attention; a window is in the mask function already."""


def rule(mask_function: Callable[..., Tensor], **options: Any) -> Rule | Tensor:
    """The registered mask function (transformers' AttentionMaskInterface)."""
    plan = current()
    return outside.mask(mask_function=mask_function, **options) if plan is None else Rule(plan, mask_function)


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: object,
    scaling: float | int | None = None,  # Dia gives 1
    dropout: float = 0.0,
    is_causal: bool | None = None,
    *,
    position_bias: Tensor | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **extra: Any,
) -> tuple[Tensor, Tensor | None]:
    """The registered attention function (transformers' AttentionInterface).

    Args:
        module: the attention layer; its identity numbers it.
        query: (B, H, N, d).
        key, value: (B, K, N, d), not repeated for grouped queries.
        attention_mask: the `Rule` that our mask function returned; a tensor where no plan is running.
        scaling: as the model gives it; None = d ** -0.5.
        dropout: probability, in training.
        is_causal: ignored under a plan, where the mask function says it.
        position_bias: T5's relative bias (1, H, N, N), by distances only; or one for each text of a batch (B, H, N, N).
        softcap: Gemma 2's.
        s_aux: gpt_oss' sinks (H,).
        extra: other arguments of the layer; any that is not in `HARMLESS` raises.

    Returns:
        (B, N, H, d) and None for the weights.
    """
    scale = query.shape[-1] ** -0.5 if scaling is None else float(scaling)
    tau = attention_mask.plan.sight.temperature if isinstance(attention_mask, Rule) else 1
    if tau != 1:  # with a softcap c too: c tanh(s / c) / tau is that of s / tau and c / tau
        scale, softcap = scale / tau, None if softcap is None else softcap / tau
        s_aux, position_bias = (None if t is None else t / tau for t in (s_aux, position_bias))
    if not isinstance(attention_mask, Rule):
        if current() is not None or not (attention_mask is None or isinstance(attention_mask, Tensor)):
            raise UnsupportedModel(f"{type(module).__name__} does not hand on the mask that the mask interface made")
        return outside.attention(
            module, query, key, value, attention_mask, scaling=scale, dropout=dropout, is_causal=is_causal,
            softcap=softcap, s_aux=s_aux, position_bias=position_bias, **extra,
        )  # fmt: skip
    if unknown := [k for k, v in extra.items() if v is not None and k not in HARMLESS]:
        raise UnsupportedModel(f"{type(module).__name__} passes {', '.join(unknown)}, which may change attention")
    return _by_groups(module, query, key, value, attention_mask, scale, dropout, position_bias, softcap, s_aux), None


def _by_groups(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    rule: Rule,
    scale: float,
    dropout: float,
    bias: Tensor | None,
    softcap: float | None,
    sinks: Tensor | None,
) -> Tensor:
    """Attention of each group by itself (B, N, H, d); the plan's readers read it."""
    plan = rule.plan
    layer = plan.enter(module)
    show_values(layer, value)
    readers = () if plan.force_bidirectional else tuple(r for r in plan.readers if r.wants(layer))
    sizes = [group.segments * group.length for group in plan.groups]
    parts: Any = [(query, key, value)]
    if len(sizes) > 1:
        parts = zip(*(t.split_with_sizes(sizes, 2) for t in parts[0]), strict=True)
    out = []
    for (number, _, count, n, prefix), each in zip(plan.groups, parts, strict=True):
        q, k, v = (_segments(t, count) for t in each) if plan.flat else each
        if prefix:
            k, v = _with_prefix(key, prefix, k), _with_prefix(value, prefix, v)
        mask = rule.mask(n, plan.force_bidirectional or layer in plan.both_ways, q.device, len(prefix))
        o, lse = fused.attention(
            q, k, v, mask, scale, dropout, bias=bias, softcap=softcap, sinks=sinks, want_lse=bool(readers)
        )
        if readers and number != FILLER:
            counted = sinks if plan.sinks_count else None
            view = _view(layer, number, q, k, scale, mask, lse if counted is sinks else None, bias, softcap, counted)
            with torch.autocast(q.device.type, enabled=False):  # readers compute in float32
                for reader in readers:
                    reader.read(view)
        o = o.transpose(1, 2)
        out.append(o.reshape(1, count * n, *o.shape[2:]) if plan.flat else o)
    return (torch.cat(out, 1) if len(out) > 1 else out[0]).contiguous()


def _segments(part: Tensor, count: int) -> Tensor:
    """A group's part of the batch (1, H, G n, d) as (G, H, n, d), without a copy."""
    if count == 1:
        return part
    _, heads, tokens, width = part.shape
    return part.view(heads, count, tokens // count, width).transpose(0, 1)


def _with_prefix(flat: Tensor, prefix: range, own: Tensor) -> Tensor:
    """Keys or values of the shared prefix in front of each segment's own (G, K, n, d): (G, K, p + n, d)."""
    shared = flat[:, :, prefix.start : prefix.stop].expand(len(own), -1, -1, -1)
    return torch.cat([shared, own], 2)


def _view(
    layer: int,
    group: int,
    q: Tensor,
    k: Tensor,
    scaling: float,
    mask: Mask,
    lse: Tensor | None,
    bias: Tensor | None,
    softcap: float | None,
    sinks: Tensor | None,
) -> ScoreView:
    n = q.shape[2]
    bias = None if bias is None else bias[..., :n, :n]
    return ScoreView(layer, group, mask.backward, q, k, scaling, mask.allowed, bias, softcap, sinks, lse)


AttentionInterface.register(NAME, attend)
AttentionMaskInterface.register(NAME, rule)
