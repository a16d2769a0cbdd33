"""One layer's attention weights, computed in pieces, so that the full (heads, n, n) matrix is never stored.

Fused attention also returns the log-sum-exp of each query's scores. With it, any single weight is

    log A[q, k] = score(q, k) - lse[q]

so a diagonal or a column costs O(n d) for each head, and a maximum over heads needs one (n, C) buffer.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from ..shapes import Keys, Queries

Tokens = Tensor | slice
"""Indices of tokens (G, C), or a slice for all segments."""

TILE = 64  # rows of scores that are stored at once if the log-sum-exp is computed here


class AttentionView(ABC):
    """The attention of one layer over one group of segments.

    Attributes:
        layer: from 0.
        group: which of the batch's groups.
        causal: every weight right of the diagonal is 0.
        heads: H.
        length: n.
    """

    layer: int
    group: int
    causal: bool
    heads: int
    length: int

    @abstractmethod
    def diagonal(self) -> Tensor:
        """A[k, k] of every head (G, H, n)."""

    @abstractmethod
    def log_weights(self, columns: Tokens, rows: Tokens, heads: slice) -> Tensor:
        """log A[row, column]: how much each row attends to each column (G, H, R, C).

        Undefined right of a causal layer's diagonal.
        """

    def weights(self, heads: slice) -> Tensor:
        """The matrices A of some heads (G, H, n, n), for short texts: their size grows with n * n."""
        every = slice(0, self.length)
        weights = self.log_weights(every, every, heads).clamp(max=0).exp()
        return weights.tril() if self.causal else weights


class MatrixView(AttentionView):
    """Attention weights that a model returned as matrices (G, H, n, n)."""

    def __init__(self, layer: int, group: int, causal: bool, matrix: Tensor) -> None:
        self.layer, self.group, self.causal, self.matrix = layer, group, causal, matrix
        self.heads, self.length = matrix.shape[1], matrix.shape[-1]

    def diagonal(self) -> Tensor:
        """A[k, k] of every head (G, H, n)."""
        return self.matrix.diagonal(dim1=-2, dim2=-1)

    def log_weights(self, columns: Tokens, rows: Tokens, heads: slice) -> Tensor:
        """log A[row, column] (G, H, R, C); the gradient of a weight of 0 is 0, not NaN."""
        weights = _take(_take(self.matrix[:, heads], rows, 2), columns, 3)
        zero = weights == 0
        return weights.masked_fill(zero, 1).log().masked_fill(zero, -math.inf)


@dataclass
class ScoreView(AttentionView):
    """Attention weights computed from queries and keys, with the mask, bias, softcap and sinks of the model.

    Attributes:
        q, k: (G, H, n, d) and, not repeated, (G, K, n, d).
        scaling: factor of the scores.
        mask: which tokens a token attends to (n, n); None for a causal mask, or if all tokens attend to all.
        bias: added to the scores (1 or G, H, n, n), or None.
        softcap: scores are squashed to ±softcap by tanh, or None.
        sinks: one more score per head, which takes weight and adds no value (H,), or None.
        fused_lse: log-sum-exp of the scores (G, H, n), sinks included, if the attention kernel returned it.
    """

    layer: int
    group: int
    causal: bool
    q: Queries
    k: Keys
    scaling: float
    mask: Tensor | None = None
    bias: Tensor | None = None
    softcap: float | None = None
    sinks: Tensor | None = None
    fused_lse: Tensor | None = None

    def __post_init__(self) -> None:
        """Read the sizes."""
        self.heads, self.length = self.q.shape[1], self.q.shape[2]

    @cached_property
    def lse(self) -> Tensor:
        """log of the sum of exp of every query's scores (G, H, n), in float32 or better."""
        if self.fused_lse is not None:
            return wide(self.fused_lse)
        tiles = []
        for start in range(0, self.length, TILE):
            rows = slice(start, min(start + TILE, self.length))
            s = self._scores(slice(0, rows.stop if self.causal else self.length), rows, slice(None))
            if self.causal:
                below = torch.ones(s.shape[-2:], dtype=torch.bool, device=s.device).tril(start)
                s = s.masked_fill(~below, -math.inf)
            tiles.append(s.logsumexp(-1))
        lse = torch.cat(tiles, -1)
        return lse if self.sinks is None else torch.logaddexp(lse, wide(self.sinks).view(1, -1, 1))

    def diagonal(self) -> Tensor:
        """A[k, k] of every head (G, H, n)."""
        s = self._capped((wide(self.q) * self._keys(slice(None), slice(None))).sum(-1) * self.scaling)
        if self.bias is not None:
            s = s + self.bias.diagonal(dim1=-2, dim2=-1)
        return (s - self.lse).clamp(max=0).exp()

    def log_weights(self, columns: Tokens, rows: Tokens, heads: slice) -> Tensor:
        """log A[row, column] (G, H, R, C)."""
        lse = _take(self.lse[:, heads], rows, 2)
        if self.softcap is None and self.bias is None and self.mask is None:
            q, k = wide(_take(self.q[:, heads], rows, 2)), self._keys(heads, columns)
            scores = torch.baddbmm(
                lse.flatten(0, 1)[..., None], q.flatten(0, 1), k.flatten(0, 1).mT, beta=-1, alpha=self.scaling
            )
            return scores.view(*q.shape[:3], k.shape[2])
        return self._scores(columns, rows, heads) - lse[..., None]

    def _scores(self, columns: Tokens, rows: Tokens, heads: slice) -> Tensor:
        """What the softmax of some rows reads at some columns (G, H, R, C)."""
        s = self._capped(wide(_take(self.q[:, heads], rows, 2)) @ self._keys(heads, columns).mT * self.scaling)
        if self.bias is not None:
            s = s + _take(_take(self.bias.expand(len(self.q), -1, -1, -1)[:, heads], rows, 2), columns, 3)
        if self.mask is not None:
            mask = self.mask.expand(len(self.q), 1, -1, -1)
            s = s.masked_fill(~_take(_take(mask, rows, 2), columns, 3), -math.inf)
        return s

    def _capped(self, scores: Tensor) -> Tensor:
        return scores if self.softcap is None else torch.tanh(scores / self.softcap) * self.softcap

    def _keys(self, heads: slice, columns: Tokens) -> Tensor:
        """Keys of some heads, repeated for grouped queries, at some columns (G, H, C, d); a copy only where needed."""
        first, end, _ = heads.indices(self.heads)
        per = self.heads // self.k.shape[1]
        k = _take(self.k[:, first // per : (end - 1) // per + 1], columns, 2)
        if k.shape[1] != end - first:
            k = k[:, torch.arange(first, end, device=k.device) // per - first // per]
        return wide(k)


def _take(x: Tensor, tokens: Tokens, dim: int) -> Tensor:
    """Some tokens along dimension 2 or 3 of x (G, H, ...)."""
    if isinstance(tokens, slice):
        return x[:, :, tokens] if dim == 2 else x[..., tokens]
    sizes = list(x.shape)
    sizes[dim] = tokens.shape[1]
    return x.gather(dim, tokens.view(len(tokens), *[-1 if i == dim else 1 for i in range(1, x.ndim)]).expand(sizes))


def wide(x: Tensor) -> Tensor:
    """At least float32: rounding a score of 10 to bfloat16 changes its weight by up to 3 %."""
    return x if x.dtype == torch.float64 else x.float()
