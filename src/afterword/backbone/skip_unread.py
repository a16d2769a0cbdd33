"""Products of the last layer for those tokens alone whose last states are read.

Last, cls and mask pooling read one token of a text; behind the last attention no token looks at another, so the other
rows need no products there. Which layers that holds for is not known by name: it is tried, with noise in the rows that
nobody reads. A product of some rows is filled as a whole forward is, so each row has the bits that it has uncut.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..text.batch import Batch, lay
from ..text.segments import Segment, TokenizedText
from .attention_masks import current
from .linear_patching import Patch, current_patch, patched
from .linear_probe import filled
from .packing import PackedBatch
from .pickling import is_recorder

WORTH = 512  # rows without a product, below which a forward runs whole
MOST = 0.5  # of the rows are read at most
LENGTHS = (9, 9, 6, 13)  # tokens of the texts that are tried, two of one length


@dataclass(frozen=True)
class ReadRows:
    """Which rows of a forward are read.

    Attributes:
        at: their places on the forward's flat axis (R,).
        total: rows of the forward.
        whole: their number is filled to a multiple of this.
        noise: fills the rows that nobody reads with random numbers, to try whether they matter; else with zeros.
    """

    at: Tensor
    total: int
    whole: int
    noise: bool = False

    def product(self, of: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """A product (..., N, in) to (..., N, out), of the rows that are read."""
        count = len(self.at)
        some = of(x.index_select(-2, torch.cat([self.at, self.at[:1].expand(-count % self.whole)])))
        shape = (*x.shape[:-1], some.shape[-1])
        out = some.new_zeros(shape)
        if self.noise:
            out.normal_(generator=torch.Generator().manual_seed(0))  # the user's own stays as it is
        return out.index_copy_(-2, self.at, some.narrow(-2, 0, count))

    def only(self, states: Tensor) -> Tensor:
        """States (1, N, D) of the rows that are read, zeros elsewhere: what stands there may be no number."""
        return torch.zeros_like(states).index_copy_(-2, self.at, states.index_select(-2, self.at))


class Cut(NamedTuple):
    """A forward of which not every last state is read.

    Attributes:
        read: indices of those that are, on the batch's flat axis (R,).
        layers: the linear layers whose products are cut to them.
        noise: as in `ReadRows`.
    """

    read: Tensor
    layers: tuple[nn.Module, ...]
    noise: bool = False


Run = Callable[[Batch, Cut | None], Tensor]
"""Gives the last states (N, D) of a batch."""


class _CutPatch(Patch):
    """As the serving around it, with some layers' products cut."""

    def __init__(self, outer: Patch, layers: Sequence[nn.Module], rows: ReadRows) -> None:
        super().__init__(outer.packed, outer.products)
        self.layers, self.rows = frozenset(map(id, layers)), rows

    def call(self, module: nn.Module, x: Tensor) -> Tensor:
        """The rows that are read, where this layer is cut."""
        if id(module) not in self.layers or x.dim() < 2 or x.shape[-2] != self.rows.total:
            return super().call(module, x)
        whole = super().call
        out = self.rows.product(lambda some: whole(module, some), x)
        if self.activated is not None:
            self.activated = out
        return out


class _RecordingPatch(Patch):
    """As the serving around it, and notes which linear layer is called when."""

    def __init__(self, outer: Patch) -> None:
        super().__init__(outer.packed, outer.products)
        self.calls: list[tuple[nn.Module, int, int]] = []
        """The layer, how many attentions were called before it, and its rows."""

    def call(self, module: nn.Module, x: Tensor) -> Tensor:
        """The layer's own product."""
        plan = current()
        self.calls.append((module, plan.calls if plan is not None else 0, x[..., 0].numel()))
        return super().call(module, x)


@contextmanager
def cutting(cut: Cut | None, first: int, packed: PackedBatch, rows: int) -> Iterator[ReadRows | None]:
    """Cut the last layer's products of one forward in this thread, where enough of its rows are not read.

    Args:
        cut: what is read of the whole batch; None = everything.
        first: where the forward's part of the batch begins, on its flat axis.
        fed: what the model reads.
        rows: to a multiple of how many rows a thread a short product is filled.

    Yields:
        The rows that are read; None = all of them.
    """
    layers: tuple[nn.Module, ...] = ()
    if cut is not None:
        inside = cut.read[(cut.read >= first) & (cut.read < first + packed.size)] - first
        at = inside if packed.index is None else packed.index[inside]
        if len(at) and (cut.noise or len(packed.tokens) - len(at) >= WORTH):
            layers = cut.layers
    if cut is None or not layers:
        yield None
        return
    now = ReadRows(at, len(packed.tokens), filled(len(at), rows), cut.noise)
    with patched(_CutPatch(current_patch() or Patch({}, "float32"), layers, now), layers):
        yield now


def find(
    run: Run, linears: Sequence[nn.Module], attention: nn.Module, vocabulary: int, device: torch.device
) -> tuple[nn.Module, ...]:
    """The linear layers of a model whose products may be cut to the rows that are read; none where unsure.

    Args:
        run: the model.
        linears: its linear layers.
        attention: of the last layer; the first linear layer in it may make the queries.
        vocabulary: how many token ids it knows.
        device: where it is.
    """
    if not linears:
        return ()
    ids = [[(13 * i + 5 * n + 3) % vocabulary for i in range(n)] for n in LENGTHS]
    batch = lay([TokenizedText((Segment(text, ((0, len(text)),)),)) for text in ids], device)
    read = torch.cat([g.start + g.length * torch.arange(1, g.count + 1, device=device) - 1 for g in batch.groups])
    with patched(_RecordingPatch(current_patch() or Patch({}, "float32")), linears) as recording:
        wanted = run(batch, None)[read]
    assert isinstance(recording, _RecordingPatch)
    calls, times = recording.calls, Counter(id(module) for module, *_ in recording.calls)
    last = max((before for _, before, _ in calls), default=0)
    all_rows = max((rows for *_, rows in calls), default=0)
    behind = [(module, rows) for module, before, rows in calls if before == last]
    if not last or any(rows not in (1, all_rows) or times[id(module)] > 1 for module, rows in behind):
        return ()  # experts get some rows each; a layer that is shared would be cut elsewhere too
    tail = tuple(module for module, rows in behind if rows == all_rows)
    inside = set(map(id, attention.modules()))
    query = tuple(module for module, before, _ in calls if before == last - 1 and id(module) in inside)[:1]
    for tried in dict.fromkeys((query + tail, tail)):
        if tried and torch.equal(run(batch, Cut(read, tried, noise=True))[read], wanted):
            return tried
    return ()


def has_hooks(modules: Sequence[nn.Module]) -> bool:
    """Whether somebody would see the rows that nobody reads: any hook but transformers' own recorders."""
    return any(
        m._forward_pre_hooks or "forward" in m.__dict__ or not all(map(is_recorder, m._forward_hooks.values()))
        for m in modules
    )
