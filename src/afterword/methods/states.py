"""Which states v_k a method weights: the last layer, first and last, the static table, any layer."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ..backbone.backbone import LAST, NORMED, TABLE, Backbone, Layer, Trace
from ..errors import MethodError, NoSuchHead

NAMES: dict[str, tuple[Layer, ...]] = {
    "last": (LAST,),
    "first_last": (0, LAST),
    "first_last_h1": (1, LAST),
    "last_two": (-2, LAST),
    "static": (TABLE,),
    "static_h0": (0,),
}
"""The named states: the mean of these layers. hidden_states[0] is what the first layer reads, "table" the bare
word table, "last" what the model returns. first_last is Ditto's (h0 + hL) / 2, first_last_h1 that of SimCSE's code."""


@dataclass(frozen=True)
class States:
    """States as a mean of layers.

    Args:
        kind: one of `NAMES`, or "layer:k" for hidden_states[k], or "layer:j+k" for the mean of several; k counts
            from 0, the embeddings, and from -1, the last. "normed:k" is what the model gives when it keeps its
            first k layers only: hidden_states[k] behind its final norm.

    >>> States("layer:0+2").layers
    (0, 2)
    """

    kind: str = "last"

    def __post_init__(self) -> None:
        """Refuse what names no layer."""
        _ = self.layers

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The layers whose mean it is.

        Raises:
            MethodError: the kind is unknown.
        """
        if not isinstance(self.kind, str):
            raise MethodError(f"states={self.kind!r}: choose one of {', '.join(NAMES)}, layer:k, layer:j+k, normed:k")
        if self.kind in NAMES:
            return NAMES[self.kind]
        name, _, numbers = self.kind.partition(":")
        if name == "normed" and numbers.isascii() and numbers.isdigit():
            return (f"{NORMED}{int(numbers)}",)
        try:
            found = tuple(int(n) for n in numbers.split("+"))
        except ValueError:
            found = ()
        if name != "layer" or not found:
            raise MethodError(f"states={self.kind!r}: choose one of {', '.join(NAMES)}, layer:k, layer:j+k, normed:k")
        return tuple(LAST if n == -1 else n for n in found)

    @property
    def truncates(self) -> bool:
        """Whether they are those of the model's first layers, behind its final norm."""
        return any(str(layer).startswith(NORMED) for layer in self.layers)

    def width(self, backbone: Backbone) -> int:
        """D, the width of a state."""
        return backbone.table_width if self.layers == (TABLE,) else backbone.facts.width

    def check(self, layers: int) -> None:
        """Whether a model of so many layers has them.

        Raises:
            NoSuchHead: it has not.
        """
        for layer in self.layers:
            at = int(layer.removeprefix(NORMED)) if isinstance(layer, str) and layer.startswith(NORMED) else layer
            if isinstance(at, int) and not -layers - 1 <= at <= layers:
                raise NoSuchHead(f"states={self.kind!r}: the model has hidden states 0 to {layers}")

    def of(self, trace: Trace) -> Tensor:
        """The states (N, D) of a forward."""
        parts = [trace.states[layer] for layer in self.layers]
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        return total / len(parts) if len(parts) > 1 else total
