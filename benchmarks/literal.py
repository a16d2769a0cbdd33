"""ReBA as its paper writes it: eager attention, every matrix kept, the loop over layers and heads. One text at a time.

Nothing here is tuned, on purpose: it is Algorithm 1 and Equation 4 line by line, the yardstick for what
`afterword` computes without ever holding a matrix of attention.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


def attention_matrix(attentions: tuple[Tensor, ...]) -> Tensor:
    """Algorithm 1: the maximum over layers p and heads q of (A + A^T) / 2, for attentions of (1, H, n, n)."""
    new = torch.zeros_like(attentions[0][0, 0])
    for layer in attentions:
        for a in layer[0]:
            symmetric = (a + a.T) / 2
            new = (new + symmetric) / 2 + (new - symmetric).abs() / 2
    return new


@torch.no_grad()
def reba_last(model: nn.Module, ids: list[int], copies: int = 2) -> Tensor:
    """Algorithm 3 with last pooling: e_n = sum over k >= n of A_new[n, k] v_k (D,)."""
    out = model(torch.tensor([ids * copies]), output_attentions=True, use_cache=False)
    a, n = attention_matrix(out.attentions), len(ids)
    total = torch.zeros_like(out.last_hidden_state[0, 0])
    for k in range(n - 1, copies * n):
        total = total + a[n - 1, k] * out.last_hidden_state[0, k]
    return total
