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

Columns = Tensor | slice
"""Token indices (G, C), or a slice for all segments."""

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
    def log_weights(self, columns: Columns, rows: slice, heads: slice) -> Tensor:
        """log A[row, column]: how much each row attends to each column (G, H, rows, C).

        Undefined right of a causal layer's diagonal.
        """

    @abstractmethod
    def log_weights_transposed(self, columns: Tensor, rows: slice, heads: slice) -> Tensor:
        """log A[column, row]: how much each column's token attends to each row's (G, H, rows, C).

        Undefined left of a causal layer's diagonal.
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

    def log_weights(self, columns: Columns, rows: slice, heads: slice) -> Tensor:
        """log A[row, column] (G, H, rows, C)."""
        part = self.matrix[:, heads, rows]
        if isinstance(columns, slice):
            return _log(part[..., columns])
        return _log(part.gather(-1, columns[:, None, None].expand(*part.shape[:3], -1)))

    def log_weights_transposed(self, columns: Tensor, rows: slice, heads: slice) -> Tensor:
        """log A[column, row] (G, H, rows, C)."""
        part = self.matrix[:, heads, :, rows]
        return _log(part.gather(2, columns[:, None, :, None].expand(*part.shape[:2], -1, part.shape[3]))).mT


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
        n = self.length
        columns = torch.arange(n, device=self.q.device).expand(len(self.q), n)
        tiles = []
        for start in range(0, n, TILE):
            rows = slice(start, min(start + TILE, n))
            s = self._scores(columns[:, : rows.stop] if self.causal else columns, rows, slice(None))
            if self.causal:
                below = torch.ones(s.shape[-2:], dtype=torch.bool, device=s.device).tril(rows.start)
                s = s.masked_fill(~below, -math.inf)
            tiles.append(s.logsumexp(-1))
        lse = torch.cat(tiles, -1)
        return lse if self.sinks is None else torch.logaddexp(lse, wide(self.sinks).view(1, -1, 1))

    def diagonal(self) -> Tensor:
        """A[k, k] of every head (G, H, n)."""
        s = self._capped((wide(self.q) * self._keys(slice(None))).sum(-1) * self.scaling)
        if self.bias is not None:
            s = s + self.bias.diagonal(dim1=-2, dim2=-1)
        return (s - self.lse).clamp(max=0).exp()

    def log_weights(self, columns: Columns, rows: slice, heads: slice) -> Tensor:
        """log A[row, column] (G, H, rows, C)."""
        lse = self.lse[:, heads, rows]
        if self.softcap is None and self.bias is None and self.mask is None:
            q, k = wide(self.q[:, heads, rows]), self._keys(heads, columns)
            scores = torch.baddbmm(
                lse.flatten(0, 1)[..., None], q.flatten(0, 1), k.flatten(0, 1).mT, beta=-1, alpha=self.scaling
            )
            return scores.view(*q.shape[:3], k.shape[2])
        if isinstance(columns, slice):
            columns = torch.arange(columns.start, columns.stop, device=self.q.device).expand(len(self.q), -1)
        return self._scores(columns, rows, heads) - lse[..., None]

    def log_weights_transposed(self, columns: Tensor, rows: slice, heads: slice) -> Tensor:
        """log A[column, row] (G, H, rows, C)."""
        q = wide(self.q[:, heads])
        q = q.gather(2, columns[:, None, :, None].expand(-1, q.shape[1], -1, q.shape[3]))
        s = self._capped(self._keys(heads)[:, :, rows] @ q.mT * self.scaling)
        if self.bias is not None:
            bias = self.bias.expand(len(columns), -1, -1, -1)[:, heads]
            s = s + bias.gather(2, columns[:, None, :, None].expand(*bias.shape[:2], -1, bias.shape[3]))[..., rows].mT
        if self.mask is not None:
            s = s.masked_fill(~self.mask[columns][..., rows].mT[:, None], -math.inf)
        return s - self.lse[:, heads].gather(2, columns[:, None].expand(-1, s.shape[1], -1))[:, :, None]

    def _scores(self, columns: Tensor, rows: slice, heads: slice) -> Tensor:
        """Scores of some rows on some columns (G, H, rows, C)."""
        s = self._capped(wide(self.q[:, heads, rows]) @ self._keys(heads, columns).mT * self.scaling)
        if self.bias is not None:
            bias = self.bias.expand(len(columns), -1, -1, -1)[:, heads, rows]
            s = s + bias.gather(-1, columns[:, None, None].expand(*bias.shape[:3], -1))
        if self.mask is not None:
            s = s.masked_fill(~self.mask[rows][:, columns].transpose(0, 1)[:, None], -math.inf)
        return s

    def _capped(self, scores: Tensor) -> Tensor:
        return scores if self.softcap is None else torch.tanh(scores / self.softcap) * self.softcap

    def _keys(self, heads: slice, columns: Columns | None = None) -> Tensor:
        """Keys of some heads, repeated for grouped queries, at some columns (G, H, C, d); a copy only where needed."""
        first, end, _ = heads.indices(self.heads)
        per = self.heads // self.k.shape[1]
        k = self.k[:, first // per : (end - 1) // per + 1]
        if isinstance(columns, slice):
            k = k[:, :, columns]
        elif columns is not None:
            k = k.gather(2, columns[:, None, :, None].expand(-1, k.shape[1], -1, k.shape[3]))
        if k.shape[1] != end - first:
            k = k[:, torch.arange(first, end, device=k.device) // per - first // per]
        return wide(k)


def wide(x: Tensor) -> Tensor:
    """At least float32: rounding a score of 10 to bfloat16 changes its weight by up to 3 %."""
    return x if x.dtype == torch.float64 else x.float()


def _log(weights: Tensor) -> Tensor:
    """The logarithm, -inf of 0, with gradient 0 there instead of NaN."""
    zero = weights == 0
    return weights.masked_fill(zero, 1).log().masked_fill(zero, -math.inf)
