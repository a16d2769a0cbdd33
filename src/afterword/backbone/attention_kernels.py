"""Attention over one group of equal-length segments, by the fastest kernel that is exact for it."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from .attention_masks import Mask

CELLS = 1 << 21  # entries of one head's scores that are worked out at once, where no fused kernel is


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    seen: Mask,
    scaling: float,
    dropout: float = 0.0,
    *,
    bias: Tensor | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
    want_lse: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Attention over one group.

    Args:
        q: (G, H, n, d).
        k: (G, K, p + n, d), not repeated for grouped queries.
        v: (G, K, p + n, e).
        seen: what sees what.
        scaling: what scores are multiplied by.
        dropout: probability.
        bias: added to the scores (1, H, N, N); it depends on distances only.
        softcap: scores are squashed to ±softcap by tanh.
        sinks: one more score per head that takes weight and gives nothing (H,).
        want_lse: the log-sum-exp of the scores is wanted, where it is to be had for nothing.

    Returns:
        (G, H, n, e), and the log-sum-exp (G, H, n), sinks included, or None.
    """
    width, no_grad = v.shape[-1], not torch.is_grad_enabled()
    if no_grad and softcap is None and width < q.shape[-1]:  # latent attention: the fused kernels know one width only
        v = F.pad(v, (0, q.shape[-1] - width))
    fused = no_grad and _fused_gives_lse(q, v, dropout) and bias is None
    if softcap is not None or (sinks is not None and not fused):
        out, lse = _plainly(q, k, v, _additive(q, k, seen, bias), scaling, dropout, softcap, sinks, want_lse)
    elif fused and (want_lse or sinks is not None):
        out, lse = _with_lse(q, k, v, seen, scaling, sinks)
    else:
        mask, causal = seen.mask, seen.causal and q.shape[2] > 1
        if bias is not None:
            mask, causal = _additive(q, k, seen, bias), False
        out, lse = F.scaled_dot_product_attention(
            q, k, v, mask, dropout, causal, scale=scaling, enable_gqa=q.shape[1] != k.shape[1]
        ), None  # fmt: skip
    return out[..., :width], lse


def _fused_gives_lse(q: Tensor, v: Tensor, dropout: float) -> bool:
    """Whether the CPU's fused kernel takes these tensors; it knows no dropout and one head width only."""
    return q.device.type == "cpu" and q.shape[-1] == v.shape[-1] and dropout == 0.0


def _with_lse(
    q: Tensor, k: Tensor, v: Tensor, seen: Mask, scaling: float, sinks: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The CPU's fused kernel and the log-sum-exp it finds on its way.

    A sink is one more term in the softmax's denominator: it leaves exp(lse) / (exp(lse) + exp(sink)) of the output.
    """
    widest = torch.promote_types(torch.promote_types(q.dtype, k.dtype), v.dtype)
    q, k, v = q.to(widest), k.to(widest), v.to(widest)  # under autocast a model may hand out several types
    added = None if seen.mask is None else _additive(q, k, seen, None)
    out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        q, k, v, 0.0, seen.causal and q.shape[2] > 1, attn_mask=added, scale=scaling
    )
    if sinks is None:
        return out, lse
    sink = sinks.to(lse.dtype).view(1, -1, 1)
    return (out * torch.sigmoid(lse - sink)[..., None]).to(out.dtype), torch.logaddexp(lse, sink)


def _additive(q: Tensor, k: Tensor, seen: Mask, bias: Tensor | None) -> Tensor:
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
    """What no fused kernel has, a softcap (Gemma 2) and a gradient through sinks (gpt-oss), some rows at a time."""
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
