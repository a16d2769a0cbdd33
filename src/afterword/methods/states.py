"""The hidden states v_k that a method reads: of the last layer, of any layer, or the mean of several."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..backbone.facts import LAST, NORMED, TABLE, Layer
from ..errors import MethodError, NoSuchHead

if TYPE_CHECKING:
    from torch import Tensor

    from ..backbone.backbone import Backbone, Trace

NAMES: dict[str, tuple[Layer, ...]] = {
    "last": (LAST,),
    "first_last": (0, LAST),
    "first_last_h1": (1, LAST),
    "last_two": (-2, LAST),
    "static": (TABLE,),
    "static_h0": (0,),
}
"""The named states: the mean of these layers. hidden_states[0] is the first layer's input, "table" the input
embeddings alone, "last" the model's output. first_last is Ditto's (h0 + hL) / 2, first_last_h1 that of SimCSE's
code."""


@dataclass(frozen=True)
class States:
    """Hidden states as the mean of one or more layers.

    Args:
        kind: one of `NAMES`, or "layer:k" for hidden_states[k], or "layer:j+k" for the mean of several; k counts
            from 0, the embeddings, or backwards from -1, the last. "normed:k" is the output of the model with only
            its first k layers: hidden_states[k] after its final norm.

    >>> States("layer:0+2").layers
    (0, 2)
    """

    kind: str = "last"

    def __post_init__(self) -> None:
        """Validate the kind."""
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
            layers = tuple(int(n) for n in numbers.split("+"))
        except ValueError:
            layers = ()
        if name != "layer" or not layers:
            raise MethodError(f"states={self.kind!r}: choose one of {', '.join(NAMES)}, layer:k, layer:j+k, normed:k")
        return tuple(LAST if n == -1 else n for n in layers)

    @property
    def truncates(self) -> bool:
        """Whether the states are those of the model's first layers only, after its final norm ("normed:k")."""
        return any(str(layer).startswith(NORMED) for layer in self.layers)

    def width(self, backbone: Backbone) -> int:
        """D, the number of components of a state."""
        return backbone.table_width if self.layers == (TABLE,) else backbone.facts.width

    def check(self, layers: int) -> None:
        """Check that a model of so many layers has these states.

        Raises:
            NoSuchHead: it does not.
        """
        for layer in self.layers:
            at = int(layer.removeprefix(NORMED)) if isinstance(layer, str) and layer.startswith(NORMED) else layer
            if isinstance(at, int) and not -layers - 1 <= at <= layers:
                raise NoSuchHead(f"states={self.kind!r}: the model has hidden states 0 to {layers}")

    def mean(self, trace: Trace) -> Tensor:
        """The mean of the layers' hidden states (N, D) of a forward."""
        parts = [trace.states[layer] for layer in self.layers]
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        return total / len(parts) if len(parts) > 1 else total
