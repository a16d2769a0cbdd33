"""Skip the last layer's matrix products for tokens whose last hidden states are not read.

Last, cls and mask pooling read one token of a text, and behind the last attention no token depends on another, so the
other rows need no products there. The layers for which this is exact are found by trying: with noise in the rows that
are not read, the others must keep their bits. The rows of a product are padded with filler as those of a whole
forward are, so each row has the same bits as without skipping.
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
from .filling import Filling
from .linear_patching import Patch, current_patch, patched
from .packing import PackedBatch
from .pickling import is_recorder

WORTH = 512  # the fewest rows that must be skipped, else a forward runs whole
MOST = 0.5  # the largest part of the rows that may be read
LENGTHS = (9, 9, 6, 13)  # tokens of the texts of the trial, two of one length


@dataclass(frozen=True)
class ReadRows:
    """Which rows of a forward are read.

    Attributes:
        at: their indices among the forward's rows (R,).
        total: the number of rows of the forward.
        padded: the number of rows of a product, with filler.
        noise: give the rows that are not read random numbers, to try whether they matter; else zeros.
    """

    at: Tensor
    total: int
    padded: int
    noise: bool = False

    def product(self, layer: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """A layer's product, from (..., N, in) to (..., N, out), of the rows that are read."""
        count = len(self.at)
        some = layer(x.index_select(-2, torch.cat([self.at, self.at[:1].expand(self.padded - count)])))
        shape = (*x.shape[:-1], some.shape[-1])
        out = some.new_zeros(shape)
        if self.noise:
            out.normal_(generator=torch.Generator().manual_seed(0))  # not torch's default generator
        return out.index_copy_(-2, self.at, some.narrow(-2, 0, count))

    def only(self, states: Tensor) -> Tensor:
        """States (1, N, D) of the rows that are read, and zeros elsewhere, where NaN or infinite values may be."""
        return torch.zeros_like(states).index_copy_(-2, self.at, states.index_select(-2, self.at))


class Cut(NamedTuple):
    """What a forward of which only some last states are read may skip.

    Attributes:
        read: indices in the batch of the tokens whose last states are read (R,).
        layers: the linear layers that compute only these rows.
        noise: as in `ReadRows`.
    """

    read: Tensor
    layers: tuple[nn.Module, ...]
    noise: bool = False


Run = Callable[[Batch, Cut | None], Tensor]
"""Returns the last hidden states (N, D) of a batch."""


class _CutPatch(Patch):
    """The outer patch, with some layers computing only the rows that are read."""

    def __init__(self, outer: Patch, layers: Sequence[nn.Module], rows: ReadRows) -> None:
        super().__init__(outer.packed, outer.products)
        self.layers, self.rows = frozenset(map(id, layers)), rows

    def call(self, module: nn.Module, x: Tensor) -> Tensor:
        """The output of a layer; only the rows that are read, if it is one of these layers."""
        if id(module) not in self.layers or x.dim() < 2 or x.shape[-2] != self.rows.total:
            return super().call(module, x)
        whole = super().call
        out = self.rows.product(lambda some: whole(module, some), x)
        if self.activated is not None:
            self.activated = out
        return out


class _RecordingPatch(Patch):
    """The outer patch, which also records the order of calls of linear layers."""

    def __init__(self, outer: Patch) -> None:
        super().__init__(outer.packed, outer.products)
        self.calls: list[tuple[nn.Module, int, int]] = []
        """For each call: the layer, the number of attention calls before it, and the number of its rows."""

    def call(self, module: nn.Module, x: Tensor) -> Tensor:
        """Record the call; return the layer's output."""
        plan = current()
        self.calls.append((module, plan.calls if plan is not None else 0, x[..., 0].numel()))
        return super().call(module, x)


@contextmanager
def cutting(cut: Cut | None, first: int, packed: PackedBatch, filling: Filling) -> Iterator[ReadRows | None]:
    """Skip products of the last layer during one forward of this thread, if enough of its rows are not read.

    Args:
        cut: what is read of the whole batch; None = everything.
        first: index in the batch of the forward's first token.
        packed: the input of the forward.
        filling: to how many rows a product is padded with filler.

    Yields:
        The rows that are read; None = all, and nothing is skipped.
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
    read = ReadRows(at, len(packed.tokens), filling.total(len(at)), cut.noise)
    with patched(_CutPatch(current_patch() or Patch({}, "float32"), layers, read), layers):
        yield read


def find(
    run: Run, linears: Sequence[nn.Module], attention: nn.Module, vocabulary: int, device: torch.device
) -> tuple[nn.Module, ...]:
    """The linear layers that may compute only the rows that are read; none if unsure.

    Args:
        run: runs the model.
        linears: its linear layers.
        attention: the last attention module; the first linear layer in it may compute the queries.
        vocabulary: the number of the model's token ids.
        device: of the model.
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
        return ()  # experts get some of the rows each; a layer that is called twice would skip elsewhere too
    tail = tuple(module for module, rows in behind if rows == all_rows)
    inside = set(map(id, attention.modules()))
    query = tuple(module for module, before, _ in calls if before == last - 1 and id(module) in inside)[:1]
    for tried in dict.fromkeys((query + tail, tail)):
        if tried and torch.equal(run(batch, Cut(read, tried, noise=True))[read], wanted):
            return tried
    return ()


def has_hooks(modules: Sequence[nn.Module]) -> bool:
    """Whether any module has a hook, which would get the skipped rows; transformers' recorders do not count."""
    return any(
        m._forward_pre_hooks or "forward" in m.__dict__ or not all(map(is_recorder, m._forward_hooks.values()))
        for m in modules
    )
