"""The hidden states v_k that a method reads: of the last layer, of any layer, or the mean of several."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ..backbone.facts import LAST, NORMED, TABLE, Layer, inside
from ..errors import MethodError, NoSuchHead
from .code_hash import enter

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
            its first k layers: hidden_states[k] after its final norm. "attention:all", "attention:upper" or
            "attention:j+k" is the sum of the outputs of these layers' attention blocks, "values:all" and so on the
            mean of their value vectors (width K d, K heads of keys and values); layers with attention count from 0.
            "router" is what all routers of a mixture of experts give, side by side, "router:softmax" each softmaxed.

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
        kind = self.kind if isinstance(self.kind, str) else ""
        name, _, numbers = kind.partition(":")
        if kind in NAMES:
            return NAMES[kind]
        if kind in ("router", "router:softmax") or (name in ("attention", "values") and numbers in ("all", "upper")):
            return (kind,)
        if name == "normed" and numbers.isascii() and numbers.isdigit():
            return (f"{NORMED}{int(numbers)}",)
        try:
            layers = tuple(int(n) for n in numbers.split("+"))
        except ValueError:
            layers = ()
        if name in ("attention", "values") and layers:
            return (kind,)
        if name == "layer" and layers:
            return tuple(LAST if n == -1 else n for n in layers)
        raise MethodError(
            f"states={self.kind!r}: choose one of {', '.join(NAMES)}, layer:k, layer:j+k, normed:k, attention:all, "
            "attention:j+k, values:all, values:upper, router"
        )

    @property
    def truncates(self) -> bool:
        """Whether the states are those of the model's first layers only, after its final norm ("normed:k")."""
        return any(str(layer).startswith(NORMED) for layer in self.layers)

    def width(self, backbone: Backbone) -> int:
        """D, the number of components of a state."""
        if inside(self.layers[0]):
            return backbone.width_of(self.layers[0])
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


OWN_STATES: dict[str, type[OwnStates]] = {}
"""Every kind of states of a user's own that files can name, by its `kind`."""


@dataclass(frozen=True)
class OwnStates(States, ABC):
    """States of one's own, computed from others. A class says by its `kind` what saved folders call it."""

    kind: ClassVar[str]  # type: ignore[misc]
    reads: ClassVar[tuple[str, ...]] = ("last",)
    """The kinds of states that it is computed from, as `States` takes them."""
    code: ClassVar[str | None] = None
    """A hash of the file of the class, as it was when the class was made."""

    def __init_subclass__(cls, **options: object) -> None:
        """Enter the class under its kind.

        Raises:
            MethodError: the kind is no name, or is that of another class.
        """
        super().__init_subclass__(**options)
        enter(cls, OWN_STATES)

    @abstractmethod
    def __call__(self, *states: Tensor) -> Tensor:
        """The states (N, D') from those of `reads` (N, D), each row from the same rows of these."""

    @property
    def layers(self) -> tuple[Layer, ...]:
        """All that is read."""
        return tuple(dict.fromkeys(layer for kind in self.reads for layer in States(kind).layers))

    def width(self, backbone: Backbone) -> int:
        """D', by default that of the first of `reads`."""
        widths = [States(kind).width(backbone) for kind in self.reads]
        return widths[0]

    def mean(self, trace: Trace) -> Tensor:
        """The states (N, D') of a forward.

        Raises:
            MethodError: the class gives no vector for each token, or of a width that it does not say.
        """
        parts = [States(kind).mean(trace) for kind in self.reads]
        states, (rows, width) = self(*parts), parts[0].shape
        shape, said = tuple(getattr(states, "shape", ())), type(self).width is not OwnStates.width
        if len(shape) != 2 or shape[0] != rows or not (said or shape[1] == width) or not states.is_floating_point():
            raise MethodError(
                f"{type(self).__name__} gives states of the shape {shape}: give a row of floating-point numbers for "
                f"each of the {rows} tokens, and say by width(self, backbone) where it is not {width} long"
            )
        return states
