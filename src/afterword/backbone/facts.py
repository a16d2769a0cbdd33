"""The facts about a model that decide how it is run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ..errors import AttentionNotSeen, MethodError, NoSuchHead, UnsupportedModel
from .bidirectional import Sight

Way = Literal["flat", "stacked", "eager"]
"""How a model is run: all segments concatenated, through our attention backend ("flat"); batches of equal length
through our attention backend ("stacked"); or batches of equal length with the model's own attention ("eager")."""

LAST, TABLE, NORMED = "last", "table", "normed:"
Layer = int | str
"""Which hidden states: "last" (after the final norm, as the model returns it), "table" (the input embedding table), an
integer k (``hidden_states[k]``), "normed:k" (what the model returns when only its first k layers are kept); or what is
computed inside layers: "attention:..." (outputs of attention blocks, summed), "values:..." (the mean of value vectors),
"router" or "router:softmax" (of all mixtures of experts)."""


def inside(layer: Layer) -> str:
    """Return "attention", "values" or "router" for what is read inside layers, "" for hidden states."""
    name = str(layer).partition(":")[0]
    return name if name in ("attention", "values", "router") else ""


def layer_numbers(layer: str, layers: int) -> frozenset[int]:
    """Return the layers that "attention:..." or "values:..." names, from 0 among the `layers` with attention.

    The name ends in "all", "upper" (the second half), "k" or "j+k"; -1 is the last. Raises NoSuchHead for any other.
    """
    if not layers:
        raise NoSuchHead(f"states={layer!r}: the model has no layer with attention, use states='layer:k'")
    which = layer.partition(":")[2]
    if which in ("all", "upper"):
        return frozenset(range(layers // 2 if which == "upper" else 0, layers))
    numbers = [int(n) for n in which.split("+")]
    if not all(-layers <= n < layers for n in numbers):
        raise NoSuchHead(f"states={layer!r}: the model has attention in layers 0 to {layers - 1}")
    return frozenset(n % layers for n in numbers)


@dataclass(frozen=True)
class Facts:
    """What the self-check found out about a model.

    Attributes:
        kind: config.model_type.
        layers, heads: the number of layers with attention, and of heads; 0 if the model has none. Methods number
            layers among those with attention.
        width: of the last hidden state.
        causal: no token's state depends on later tokens.
        way: how the model is run.
        attention: whether attention weights can be read.
        offset: position of the first token. If it is not 0, as in RoBERTa, the id of the padding token is `offset` - 1;
            a padding token is not counted, and its position is its id.
        max_length: the most tokens of a text, or None.
        split_at: segments shorter and longer than this must not share a forward (long rotary frequencies).
        grows: segments longer than `split_at` share a forward with equal lengths only (dynamic rotary frequencies).
        shares: a shared prefix can run once.
        sinks_count: the weights that the model returns sum to 1 together with the attention sinks.
        remembers: a forward leaves state in the model, which must be reset before the next.
        depth: the number of all layers, which numbers of states refer to; 0 = `layers`.
        checks: the result of each way of running in the self-check.
    """

    kind: str
    layers: int
    heads: int
    width: int
    causal: bool = False
    way: Way = "eager"
    attention: bool = False
    offset: int = 0
    max_length: int | None = None
    split_at: int | None = None
    grows: bool = False
    shares: bool = False
    sinks_count: bool = True
    remembers: bool = False
    depth: int = 0
    checks: dict[str, str] = field(default_factory=dict)

    @property
    def states(self) -> int:
        """The number of layers that have a hidden state: hidden_states[0] to hidden_states[this number]."""
        return self.depth or self.layers

    def require(self, attention: bool, sight: Sight | None) -> None:
        """Validate that a method that reads attention, or changes layers, can run on the model.

        Raises:
            AttentionNotSeen: the model's attention cannot be read, or cannot be changed.
            MethodError: a state is carried back, and the model is not causal.
            UnsupportedModel: a second stream is not defined for it.
        """
        if attention and not self.attention:
            raise AttentionNotSeen(
                f"{self.kind} shows no attention weights in each of its {self.states} layers, and ReBA and Ditto read "
                "them: use classical, echo or prompt"
            )
        if not sight:
            return
        if not self.layers or self.way == "eager":
            reason = "runs with its own attention" if self.layers else "has no layer with attention"
            raise AttentionNotSeen(
                f"{self.kind} {reason}, so no layer can be changed: BeLLM, a temperature and Token Prepending need a "
                "model that follows transformers' attention interface; use echo or prompt"
            )
        if sight.carries(self.states) and not self.causal:
            raise MethodError(f"{self.kind} is bidirectional, and Token Prepending is for causal models: use prompt")
        if sight.couple != "replace" and self.states != self.layers:
            raise UnsupportedModel(
                f"{self.kind} has attention in {self.layers} of its {self.states} layers: a second stream through some "
                "of them is not defined, use couple='replace'"
            )
