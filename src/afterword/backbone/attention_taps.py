"""Taps: readers of attention weights, each of which keeps only what its method needs while one batch runs."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from .attention_views import AttentionView

FEW = 8  # more columns than this are read as a slice if they are contiguous
ROWS = 256  # rows that are read at once
SCORES = 1 << 18  # numbers that are computed at once, unless one head has more: 1 MB stays in the processor's cache

Triangle = Literal["upper", "full"]


class Tap(ABC):
    """Reads attention weights while the model runs."""

    layer: int | None = None
    """The one layer that is read; None = all."""

    def wants(self, layer: int) -> bool:
        """Whether this layer is read."""
        return self.layer in (None, layer)

    @abstractmethod
    def read(self, view: AttentionView) -> None:
        """Read one layer's attention in one group."""

    @abstractmethod
    def result(self, group: int) -> Tensor:
        """The result for one group."""


class Diagonal(Tap):
    """A[k, k] of one head: how much each token attends to itself (Ditto, section 3). Result: (G, n).

    Layer and head are counted from 0; head None keeps all heads of the layer, with the result (G, H, n).
    """

    def __init__(self, layer: int, head: int | None) -> None:
        self.layer, self.head = layer, head
        self._read: dict[int, Tensor] = {}

    def read(self, view: AttentionView) -> None:
        """Keep the diagonal."""
        diagonal = view.diagonal()
        self._read[view.group] = diagonal if self.head is None else diagonal[:, self.head]

    def result(self, group: int) -> Tensor:
        """(G, n), or (G, H, n)."""
        return self._read[group]


class Diagonals(Tap):
    """A[k, k] of every head of every layer, to search Ditto's head in one pass. Result: (G, L, H, n)."""

    def __init__(self) -> None:
        self._read: dict[int, list[Tensor]] = {}

    def read(self, view: AttentionView) -> None:
        """Keep the diagonals; layers come in order."""
        self._read.setdefault(view.group, []).append(view.diagonal())

    def result(self, group: int) -> Tensor:
        """(G, L, H, n)."""
        return torch.stack(self._read[group], 1)


class MaxOverHeads(Tap):
    """The maximum over layers and heads of (A + A^T) / 2, for some columns (ReBA, Algorithm 1).

    For the upper triangle of a causal layer, (A + A^T) / 2 is exactly A / 2 below the diagonal, and A on it. While all
    layers are causal, the running maximum is that of log A, and `exp` is computed once, at the end; from the first
    bidirectional layer on it is that of A + A^T.

    Args:
        columns: for each group, the indices of the tokens i (G, C).
        layer: read this layer only; None = all.
        triangle: "upper" uses only tokens k >= i (Equation 4), "full" all k.

    Result: A_new[i, k] (G, C, n); with "upper", A_new[i, k < i] = 0.
    """

    def __init__(self, columns: Sequence[Tensor], triangle: Triangle = "upper", *, layer: int | None = None) -> None:
        self.columns, self.triangle, self.layer = columns, triangle, layer
        self._runs = [_run(c) for c in columns]
        self._best: dict[int, Tensor] = {}
        self._logs: dict[int, bool] = {}

    def read(self, view: AttentionView) -> None:
        """Update the running maximum with one layer."""
        columns = self.columns[view.group]
        causal = view.causal and self.triangle == "upper"
        if self._logs.setdefault(view.group, causal) and not causal:
            self._symmetrise(view.group)
        step = max(1, SCORES // (columns.numel() * min(view.length, ROWS)))
        for first in range(0, view.heads, step):
            self._add(view, columns, slice(first, min(first + step, view.heads)))

    def _symmetrise(self, group: int) -> None:
        """From log A to A + A^T: a bidirectional layer follows causal ones."""
        best, columns = _exp(self._best[group]), self.columns[group]
        at = torch.arange(best.shape[1], device=best.device)[:, None] == columns[:, None]
        self._best[group] = torch.where(at, 2 * best, best)
        self._logs[group] = False

    def _add(self, view: AttentionView, columns: Tensor, heads: slice) -> None:
        n, logs = view.length, self._logs[view.group]
        best, run = self._best.get(view.group), self._runs[view.group] if logs else None
        for start in range(0, n, ROWS):
            rows = slice(start, min(start + ROWS, n))
            if run is not None:  # right of the diagonal the values are undefined, and not used
                new = view.log_weights(slice(run.start, max(run.start + 1, min(run.stop, rows.stop))), rows, heads)
            else:
                new = view.log_weights(columns, rows, heads) if logs else _symmetric(view, columns, rows, heads)
            new = new.amax(1) if new.shape[1] > 1 else new[:, 0]
            if best is None:
                best = new.new_full((len(columns), n, columns.shape[1]), -math.inf if logs else 0.0)
            into = best[:, rows, : new.shape[-1]]
            if new.requires_grad or best.requires_grad:  # autograd needs the old maximum: do not overwrite it
                best = best.clone()
                best[:, rows, : new.shape[-1]] = torch.maximum(into, new)
            else:
                torch.maximum(into, new, out=into)
        assert best is not None
        self._best[view.group] = best

    def result(self, group: int) -> Tensor:
        """A_new[i, k] (G, C, n)."""
        best, columns = self._best[group].mT, self.columns[group]
        if self._logs[group]:
            at = torch.arange(best.shape[-1], device=best.device) == columns[..., None]
            best = best.clamp(max=0).exp()  # with scores of thousands, rounding could give a weight of more than 1
            best = torch.where(at, best, best / 2)
        else:
            best = best / 2
        if self.triangle == "full":
            return best
        return best.masked_fill(torch.arange(best.shape[-1], device=best.device) < columns[..., None], 0)


class LargestOfRow(Tap):
    """The largest weights, over layers and heads, of one token's row, divided by its sum over some tokens (SCSP).

    For each group, `rows` is the index of that token (G,), `columns` the tokens over which a row sums to 1 (G, n).
    Result: (G, n), 0 for other tokens, and for those that no head sees.
    """

    def __init__(self, rows: Sequence[Tensor], columns: Sequence[Tensor]) -> None:
        self.rows, self.columns = rows, columns
        self._log: dict[int, Tensor] = {}

    def read(self, view: AttentionView) -> None:
        """Update the running maximum with one layer."""
        row, columns = self.rows[view.group], self.columns[view.group]
        log = view.log_weights(slice(0, view.length), row[:, None], slice(0, view.heads))[:, :, 0]
        log = log.masked_fill(~columns[:, None], -math.inf)
        total = log.logsumexp(-1, keepdim=True)  # -inf where a window ends after the text
        new = (log - total.clamp(min=torch.finfo(log.dtype).min)).amax(1)
        best = self._log.get(view.group)
        self._log[view.group] = new if best is None else torch.maximum(best, new)

    def result(self, group: int) -> Tensor:
        """(G, n)."""
        return self._log[group].exp()


def _symmetric(view: AttentionView, columns: Tensor, rows: slice, heads: slice) -> Tensor:
    """A + A^T (G, H, rows, C), for each head."""
    log, transposed = view.log_weights(columns, rows, heads), view.log_weights(rows, columns, heads).mT
    if view.causal:
        k = torch.arange(rows.start, rows.stop, device=columns.device)[:, None]
        log = log.masked_fill((k < columns[:, None])[:, None], -math.inf)
        transposed = transposed.masked_fill((k > columns[:, None])[:, None], -math.inf)
    one, other = _exp(log), _exp(transposed)
    return one + other if one.requires_grad else one.add_(other)


def _exp(log: Tensor) -> Tensor:
    """A of log A, which is overwritten where no gradient needs it; scores of thousands round to no more than 1."""
    return log.clamp(max=0).exp() if log.requires_grad else log.clamp_(max=0).exp_()


def _run(columns: Tensor) -> slice | None:
    """The columns as a slice, if all segments have the same contiguous ones, and more than a few; else None."""
    first, count = int(columns[0, 0]), columns.shape[1]
    if count <= FEW or not bool((columns == torch.arange(first, first + count, device=columns.device)).all()):
        return None
    return slice(first, first + count)


class Matrices(Tap):
    """The attention matrices of short texts. Result: (G, L, H, n, n)."""

    def __init__(self) -> None:
        self.matrices: list[Tensor] = []

    def read(self, view: AttentionView) -> None:
        """Keep the matrix; layers come in order."""
        self.matrices.append(view.weights(slice(0, view.heads)))

    def result(self, group: int) -> Tensor:
        """(G, L, H, n, n)."""
        return torch.stack(self.matrices, 1)
