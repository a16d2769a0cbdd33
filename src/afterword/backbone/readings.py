"""What one forward is asked for, and what it reads inside layers: attention outputs, value vectors, router logits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import AttentionNotSeen, UnsupportedModel
from .attention_taps import Tap
from .bidirectional import Sight
from .facts import LAST, TABLE, Layer, inside, layer_numbers

NO_ROUTERS = "{} shows no routers, as mixtures of experts do: use other states, such as 'last' or 'attention:all'"


@dataclass(frozen=True)
class Request:
    """What one forward is asked for: hidden states, bidirectional layers and readings of attention."""

    layers: frozenset[Layer]
    sight: Sight
    taps: Sequence[Tap]

    @property
    def coupled(self) -> bool:
        """Whether a second, bidirectional stream runs beside the causal one."""
        return self.sight.couple != "replace"

    @property
    def outputs(self) -> dict[str, bool]:
        """Arguments by which the model returns what is asked for."""
        between = any(layer not in (LAST, TABLE) and not inside(layer) for layer in self.layers)
        routers = any(inside(layer) == "router" for layer in self.layers)
        asked = {"output_hidden_states": between, "output_router_logits": routers}
        return {name: True for name, wanted in asked.items() if wanted}


class Readings:
    """What one forward reads inside its layers.

    Args:
        asked: kinds of states; those of hidden states are ignored.
        layers: the number of layers with attention.
        kind: config.model_type, for messages.
    """

    def __init__(self, asked: Iterable[Layer], layers: int, kind: str) -> None:
        self.layers, self.kind, self.blocks = layers, kind, 0
        names = [str(layer) for layer in asked if inside(layer) in ("attention", "values")]
        self.wanted = {name: layer_numbers(name, layers) for name in names}
        self._totals: dict[tuple[str, int], Tensor] = {}

    def add(self, what: str, call: int, part: Tensor) -> None:
        """Add what a layer gives (B, n, D) to the sums of "attention" or "values"."""
        again, layer = divmod(call, self.layers)  # a model that must run texts one at a time runs its layers again
        for name, numbers in self.wanted.items():
            if inside(name) != what or layer not in numbers:
                continue
            own = part.to(torch.promote_types(part.dtype, torch.float32), copy=True)
            total = self._totals.get((name, again), own)
            if total.shape != own.shape:
                raise UnsupportedModel(
                    f"states={name!r}: layer {layer} of {self.kind} has {own.shape[-1]} components, and the layers "
                    f"before it have {total.shape[-1]}: name layers of one width"
                )
            self._totals[name, again] = own if total is own else total + own

    def result(self, name: str, out: Any) -> Tensor:
        """The states of one kind (P, D), of a model that returned `out`.

        Raises:
            AttentionNotSeen: the model did not show them.
            UnsupportedModel: its attention blocks are not those that were found.
        """
        if inside(name) == "router":
            logits = [part.flatten(0, -2) for part in getattr(out, "router_logits", None) or ()]
            if not logits:
                raise AttentionNotSeen(NO_ROUTERS.format(self.kind))
            return torch.cat([part.softmax(-1) if name == "router:softmax" else part for part in logits], -1)
        if self.blocks % self.layers:
            raise UnsupportedModel(
                f"{self.blocks} attention blocks of this {self.kind} ran, and it was loaded with {self.layers}: save "
                "the changed model and load it again"
            )
        parts = [total.flatten(0, 1) for (asked, _), total in self._totals.items() if asked == name]
        if not parts:
            raise AttentionNotSeen(
                f"states={name!r}: {self.kind} runs its own attention, which hands out no {inside(name)}: use a hidden "
                "state, states='layer:k'" + (" or 'attention:all'" if inside(name) == "values" else "")
            )
        return torch.cat(parts) / (len(self.wanted[name]) if inside(name) == "values" else 1)


def require_routers(model: nn.Module, kind: str) -> None:
    """Refuse a model that does not say what its routers give.

    Raises:
        AttentionNotSeen: it has none, or shows none.
    """
    recorded = (getattr(m, "_can_record_outputs", None) or {} for m in model.modules())
    if not any("router_logits" in outputs for outputs in recorded):
        raise AttentionNotSeen(NO_ROUTERS.format(kind))


_READINGS: ContextVar[Readings | None] = ContextVar("afterword_readings", default=None)


@contextmanager
def reading(readings: Readings, model: nn.Module, blocks: Callable[[], Sequence[str]]) -> Iterator[None]:
    """Read inside the layers of this thread's forward of a model; `blocks` names the modules of attention's outputs."""
    wanted = any(inside(name) == "attention" for name in readings.wanted)
    modules = [model.get_submodule(name) for name in blocks()] if wanted else []

    def read(module: nn.Module, inputs: object, output: Tensor) -> None:
        if _READINGS.get() is readings:  # not the forward of a different thread
            readings.add("attention", readings.blocks, output)
            readings.blocks += 1

    token = _READINGS.set(readings)
    try:
        with ExitStack() as hooks:
            for module in dict.fromkeys(modules):
                hooks.callback(module.register_forward_hook(read).remove)
            yield
    finally:
        _READINGS.reset(token)


def show_values(layer: int, value: Tensor) -> None:
    """Hand a layer's value vectors (B, K, n, d) to the running forward's readings, those of all heads side by side."""
    readings = _READINGS.get()
    if readings is not None and readings.wanted:
        readings.add("values", layer, value.transpose(1, 2).flatten(2))
