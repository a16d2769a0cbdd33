"""Small readers of attention: each keeps, while a forward runs, only what its method needs.

A tap is made for one batch, reads every layer it wants over every group, and is asked for its reading by group.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from .attention_views import AttentionView

FEW = 8  # up to so many columns are read one by one
ROWS = 256  # rows read at once
LOWEST = -1e4  # exp of it is 0; the gradient of logaddexp(-inf, -inf) would be NaN
SCORES = 1 << 18  # numbers that are worked on at once, where one head alone is not more: a megabyte stays in the cache

Triangle = Literal["upper", "full"]


class Tap(ABC):
    """Reads attention as it passes."""

    @abstractmethod
    def wants(self, layer: int) -> bool:
        """Whether this layer is to be read."""

    @abstractmethod
    def read(self, view: AttentionView) -> None:
        """Read one layer over one group."""

    @abstractmethod
    def result(self, group: int) -> Tensor:
        """The reading over one group."""


class Diagonal(Tap):
    """A[k, k] of one head: how much each token attends to itself (Ditto, section 3). Reading: (G, n).

    Args:
        layer: from 0.
        head: from 0; None keeps all heads of the layer, reading (G, H, n).
    """

    def __init__(self, layer: int, head: int | None) -> None:
        self.layer, self.head = layer, head
        self._read: dict[int, Tensor] = {}

    def wants(self, layer: int) -> bool:
        """Its one layer."""
        return layer == self.layer

    def read(self, view: AttentionView) -> None:
        """Keep the diagonal."""
        diagonal = view.diagonal()
        self._read[view.group] = diagonal if self.head is None else diagonal[:, self.head]

    def result(self, group: int) -> Tensor:
        """(G, n), or (G, H, n)."""
        return self._read[group]


class Diagonals(Tap):
    """A[k, k] of every head of every layer, for the search of Ditto's head in one pass. Reading: (G, L, H, n)."""

    def __init__(self) -> None:
        self._read: dict[int, list[Tensor]] = {}

    def wants(self, layer: int) -> bool:
        """All layers."""
        return True

    def read(self, view: AttentionView) -> None:
        """Keep the diagonals; layers come in order."""
        self._read.setdefault(view.group, []).append(view.diagonal())

    def result(self, group: int) -> Tensor:
        """(G, L, H, n)."""
        return torch.stack(self._read[group], 1)


class MaxOverHeads(Tap):
    """ReBA's Algorithm 1, some columns of it: the maximum over layers and heads of (A + A^T) / 2.

    The running maximum is kept in log space, so that `exp` is taken once at the end. For a causal layer the
    upper triangle needs no symmetrising: (A + A^T) / 2 is A / 2 below the diagonal and A on it, exactly.

    Args:
        columns: per group, which tokens i are wanted (G, C).
        layer: read this layer only; None = all.
        triangle: "upper" reads only what comes after i, k >= i (Equation 4), "full" all k.

    Reading: A_new[i, k] (G, C, n), where in an upper triangle A_new[i, k < i] = 0.
    """

    def __init__(self, columns: Sequence[Tensor], triangle: Triangle = "upper", *, layer: int | None = None) -> None:
        self.columns, self.triangle, self.layer = columns, triangle, layer
        self._runs = [_run(c) for c in columns]
        self._log: dict[int, Tensor] = {}
        self._halved: dict[int, bool] = {}

    def wants(self, layer: int) -> bool:
        """The layer asked for, or all."""
        return self.layer is None or layer == self.layer

    def read(self, view: AttentionView) -> None:
        """Fold one layer into the running maximum."""
        columns = self.columns[view.group]
        plain = view.causal and self.triangle == "upper"
        if self._halved.setdefault(view.group, plain) and not plain:
            self._symmetrise(view.group)
        step = max(1, SCORES // (columns.numel() * min(view.length, ROWS)))
        for first in range(0, view.heads, step):
            heads = slice(first, min(first + step, view.heads))
            self._fold(view, columns, heads, self._halved[view.group])

    def _symmetrise(self, group: int) -> None:
        """Halve now what is off the diagonal: a layer that sees both ways follows causal ones."""
        best, columns = self._log[group], self.columns[group]
        at = torch.arange(best.shape[1], device=best.device)[:, None] == columns[:, None]
        self._log[group] = torch.where(at, best, best - math.log(2))
        self._halved[group] = False

    def _fold(self, view: AttentionView, columns: Tensor, heads: slice, plain: bool) -> None:
        n = view.length
        best, run = self._log.get(view.group), self._runs[view.group] if plain else None
        for start in range(0, n, ROWS):
            rows = slice(start, min(start + ROWS, n))
            if run is not None:  # what is right of the diagonal means nothing
                new = view.log_weights(slice(run.start, max(run.start + 1, min(run.stop, rows.stop))), rows, heads)
            else:
                new = view.log_weights(columns, rows, heads) if plain else _symmetric(view, columns, rows, heads)
            new = new.amax(1) if new.shape[1] > 1 else new[:, 0]
            if best is None:
                best = new.new_full((len(columns), n, columns.shape[1]), -math.inf)
            into = best[:, rows, : new.shape[-1]]
            if new.requires_grad or best.requires_grad:  # autograd needs the old maximum: nothing is written over
                best = best.clone()
                best[:, rows, : new.shape[-1]] = torch.maximum(into, new)
            else:
                torch.maximum(into, new, out=into)
        assert best is not None
        self._log[view.group] = best

    def result(self, group: int) -> Tensor:
        """A_new[i, k] (G, C, n)."""
        log, columns = self._log[group].mT, self.columns[group]
        k = torch.arange(log.shape[-1], device=log.device)
        before, at = k < columns[..., None], k == columns[..., None]
        if self.triangle == "upper":
            log = log.masked_fill(before, -math.inf)
        new = log.clamp(max=0).exp()  # rounding of scores of thousands would make a weight of more than 1
        return torch.where(at, new, new / 2) if self._halved[group] else new


def _symmetric(view: AttentionView, columns: Tensor, rows: slice, heads: slice) -> Tensor:
    """log (A + A^T) / 2 (G, H, rows, C), head by head before any maximum."""
    log, transposed = view.log_weights(columns, rows, heads), view.log_weights_transposed(columns, rows, heads)
    if view.causal:
        k = torch.arange(rows.start, rows.stop, device=columns.device)[:, None]
        log = log.masked_fill((k < columns[:, None])[:, None], -math.inf)
        transposed = transposed.masked_fill((k > columns[:, None])[:, None], -math.inf)
    return torch.logaddexp(log.clamp(LOWEST, 0), transposed.clamp(LOWEST, 0)) - math.log(2)


def _run(columns: Tensor) -> slice | None:
    """The one run of tokens that all segments want; None where they want others, or few."""
    first, count = int(columns[0, 0]), columns.shape[1]
    if count <= FEW or not bool((columns == torch.arange(first, first + count, device=columns.device)).all()):
        return None
    return slice(first, first + count)
