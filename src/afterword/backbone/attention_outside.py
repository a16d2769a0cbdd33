"""Our attention backend without a plan: attention is computed as by transformers' own "sdpa".

The model of an Encoder may also be called directly, through a language-model head around it, or by a trainer. There
is no plan then, and masks are ordinary tensors.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask


def mask(**options: Any) -> Tensor:
    """The full mask (B, 1, n, p + n), never `None`, which attention functions read in different ways."""
    full = sdpa_mask(**{**options, "allow_is_causal_skip": False, "allow_is_bidirectional_skip": False})
    assert isinstance(full, Tensor)
    return full


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float,
    dropout: float = 0.0,
    is_causal: bool | None = None,
    position_bias: Tensor | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **extra: Any,
) -> tuple[Tensor, Tensor | None]:
    """Attention by transformers' sdpa, or by an explicit softmax for weights, a softcap or sinks, which sdpa lacks.

    Args:
        module: the attention layer.
        query: (B, H, n, d).
        key, value: (B, K, p + n, d), not repeated for grouped queries.
        attention_mask: bool, or added to the scores (B, 1 or H, n, p + n); None = as the layer says, causal or all.
        scaling, dropout, is_causal, position_bias, softcap, s_aux: as `attention.attend` takes them.
        extra: other arguments of the layer.

    Returns:
        (B, n, H, d); weights (B, H, n, p + n) where ``output_attentions`` asks for them.
    """
    if softcap is None and s_aux is None and not extra.get("output_attentions"):
        return sdpa_attention_forward(  # type: ignore[no-any-return]
            module, query, key, value, attention_mask, dropout, scaling, is_causal, position_bias, **extra
        )
    per, n, keys = query.shape[1] // key.shape[1], query.shape[2], key.shape[2]
    s = query @ key.repeat_interleave(per, 1).mT * scaling
    if position_bias is not None:
        s = s + position_bias
    if softcap is not None:
        s = torch.tanh(s / softcap) * softcap
    if attention_mask is None and (getattr(module, "is_causal", True) if is_causal is None else is_causal):
        attention_mask = torch.ones(n, keys, dtype=torch.bool, device=s.device).tril(keys - n)
    if attention_mask is not None and attention_mask.dtype == torch.bool:
        s = s.masked_fill(~attention_mask, torch.finfo(s.dtype).min)
    elif attention_mask is not None:
        s = s + attention_mask
    if s_aux is not None:
        s = torch.cat([s, s_aux.view(1, -1, 1, 1).expand(*s.shape[:3], 1).to(s.dtype)], -1)
    weights = s.softmax(-1, dtype=torch.promote_types(s.dtype, torch.float32)).to(query.dtype)[..., :keys]
    out = F.dropout(weights, dropout) @ value.repeat_interleave(per, 1)
    return out.transpose(1, 2).contiguous(), weights
