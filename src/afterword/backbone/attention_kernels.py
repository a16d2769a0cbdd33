"""Attention over one group of equal-length segments, by the fastest kernel that is exact for it."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from .attention_masks import Mask

CELLS = 1 << 21  # entries of one head's scores that are computed at once where no fused kernel runs


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Mask,
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
        mask: which keys each query may attend to.
        scaling: what scores are multiplied by.
        dropout: probability.
        bias: added to the scores (1, H, N, N); it depends on distances only.
        softcap: scores are squashed to ±softcap by tanh.
        sinks: one more score per head, which takes weight and adds no value (H,).
        want_lse: return the log-sum-exp of the scores too, where the kernel computes it anyway.

    Returns:
        (G, H, n, e), and the log-sum-exp (G, H, n), sinks included, or None.
    """
    width, no_grad = v.shape[-1], not torch.is_grad_enabled()
    if width < q.shape[-1] and no_grad and softcap is None:  # latent attention: fused kernels know one width only
        v = F.pad(v, (0, q.shape[-1] - v.shape[-1]))
    fused = (want_lse or sinks is not None) and no_grad and _fused_gives_lse(q, v, dropout) and bias is None
    if softcap is not None or (sinks is not None and not fused):
        out, lse = _unfused(q, k, v, _additive(q, k, mask, bias), scaling, dropout, softcap, sinks, want_lse)
    elif fused:
        out, lse = _with_lse(q, k, v, mask, scaling, sinks)
    else:
        attn_mask, causal = mask.allowed, mask.causal and q.shape[2] > 1
        if bias is not None:
            attn_mask, causal = _additive(q, k, mask, bias), False
        out, lse = F.scaled_dot_product_attention(
            q, k, v, attn_mask, dropout, causal, scale=scaling, enable_gqa=q.shape[1] != k.shape[1]
        ), None  # fmt: skip
    return out if out.shape[-1] == width else out[..., :width], lse


def _fused_gives_lse(q: Tensor, v: Tensor, dropout: float) -> bool:
    """Whether the CPU's fused kernel takes these tensors; it knows no dropout and one head width only."""
    return q.device.type == "cpu" and q.shape[-1] == v.shape[-1] and dropout == 0.0


def _with_lse(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask, scaling: float, sinks: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The CPU's fused kernel and the log-sum-exp of the scores, which it computes anyway.

    A sink is one more term in the softmax's denominator: it leaves exp(lse) / (exp(lse) + exp(sink)) of the output.
    """
    widest = torch.promote_types(torch.promote_types(q.dtype, k.dtype), v.dtype)
    q, k, v = q.to(widest), k.to(widest), v.to(widest)  # under autocast a model may hand out several types
    added = None if mask.allowed is None else _additive(q, k, mask, None)
    out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        q, k, v, 0.0, mask.causal and q.shape[2] > 1, attn_mask=added, scale=scaling
    )
    if sinks is None:
        return out, lse
    with_sink = torch.logaddexp(lse, sinks.to(lse.dtype).view(1, -1, 1))
    return (out * torch.exp(lse - with_sink)[..., None]).to(out.dtype), with_sink


def _additive(q: Tensor, k: Tensor, mask: Mask, bias: Tensor | None) -> Tensor:
    """The mask as numbers to add to the scores (n, p + n), in q's dtype: the bias, -inf where it forbids."""
    n, keys = q.shape[2], k.shape[2]
    allowed = mask.allowed
    if mask.causal:
        allowed = torch.ones(n, n, dtype=torch.bool, device=q.device).tril()
    added = torch.zeros(n, keys, dtype=q.dtype, device=q.device)
    if allowed is not None:
        added = added.masked_fill(~allowed, -math.inf)
    return added[None, None] if bias is None else added + bias[..., keys - n : keys, :keys].to(q.dtype)


def _unfused(
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
    """Attention by matrix products, some rows at a time: a softcap (Gemma 2), or a gradient through sinks (gpt-oss)."""
    n, keys, per = q.shape[2], k.shape[2], q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(per, 1), v.repeat_interleave(per, 1)
    out, lse = [], []
    for first in range(0, n, step := max(16, CELLS // (keys * q.shape[1]))):
        part = slice(first, first + step)
        s = q[:, :, part] @ k.mT * scaling
        want_lse = want_lse and s.dtype in (torch.float32, torch.float64)  # in half precision it is not exact enough

        if softcap is not None:
            s = torch.tanh(s / softcap) * softcap
        s = s + added[:, :, part]
        if sinks is not None:  # one more column, which takes weight and adds no value
            s = torch.cat([s, sinks.view(1, -1, 1, 1).expand(*s.shape[:3], 1).to(s.dtype)], -1)
        if want_lse:
            lse.append(s.logsumexp(-1))
        p = s.softmax(-1, dtype=s.dtype if s.dtype == torch.float64 else torch.float32).to(v.dtype)[..., :keys]
        out.append(F.dropout(p, dropout) @ v)
    return torch.cat(out, 2), torch.cat(lse, 2) if want_lse else None
