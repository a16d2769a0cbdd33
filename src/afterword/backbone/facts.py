"""What is known of a model and of the way it is run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ..errors import AttentionNotSeen, UnsupportedModel

Way = Literal["flat", "stacked", "eager"]
"""How a model is run: all segments end to end through the seam; equal-length batches through the seam; or
equal-length batches with the model's own attention."""


@dataclass(frozen=True)
class Facts:
    """What is known of a model; the self-check filled it in.

    Attributes:
        kind: config.model_type.
        layers, heads: of attention; 0 where the model has none. A layer is numbered among those with attention.
        width: of the last state.
        causal: no token's state depends on what comes after it.
        way: how it is run.
        attention: weights can be read.
        offset: position of the first token (RoBERTa and its kin do not start at 0).
        skips: a token that takes no position, its padding's: it stands at `offset` - 1, and is not counted (RoBERTa
            and its kin); None where every token takes one.
        max_length: tokens at most, or None.
        split_at: segments on both sides of this length must not share a forward (long rotary frequencies).
        grows: beyond `split_at`, one length at a time (dynamic rotary frequencies).
        shares: tokens with which many texts begin can be run once for all of them.
        alone: one text at a time: what else is in a batch would change a state.
        sinks_count: an attention weight is a share of what a query gives to tokens and sinks; False: to tokens alone,
            where the model itself hands its weights out so.
        remembers: a forward leaves something behind that the next one must not see.
        depth: layers in all, with attention or not; states are numbered among these. 0 = as many as `layers`.
        checks: what each way of running gave in the self-check.
    """

    kind: str
    layers: int
    heads: int
    width: int
    causal: bool = False
    way: Way = "eager"
    attention: bool = False
    offset: int = 0
    skips: int | None = None
    max_length: int | None = None
    split_at: int | None = None
    grows: bool = False
    shares: bool = False
    alone: bool = False
    sinks_count: bool = True
    remembers: bool = False
    depth: int = 0
    checks: dict[str, str] = field(default_factory=dict)

    @property
    def states(self) -> int:
        """How many layers make a state of their own: hidden_states[0] to hidden_states[this]."""
        return self.depth or self.layers

    def require(self, attention: bool, both_ways: bool, coupled: bool = False) -> None:
        """Refuse what cannot be asked of the model.

        Args:
            attention: its attention weights are read.
            both_ways: some of its layers shall attend in both directions.
            coupled: they do so in a second stream beside the causal one (BeLLM, Equation 5).

        Raises:
            AttentionNotSeen: its attention cannot be read, or not be changed.
            UnsupportedModel: a second stream is not defined for it.
        """
        if attention and not self.attention:
            raise AttentionNotSeen(
                f"{self.kind} shows no attention weights in each of its {self.states} layers, and ReBA and Ditto read "
                "them: use classical, echo or prompt"
            )
        if both_ways and not self.layers:
            raise AttentionNotSeen(
                f"{self.kind} has no layer with attention that could see both ways: use echo or prompt"
            )
        if both_ways and self.way == "eager":
            raise AttentionNotSeen(
                f"{self.kind} runs with its own attention, so no layer can be made to see both ways: BeLLM needs a "
                "model that follows transformers' attention interface"
            )
        if coupled and self.states != self.layers:
            raise UnsupportedModel(
                f"{self.kind} has attention in {self.layers} of its {self.states} layers: a second stream through some "
                "of them is not defined, use couple='replace'"
            )
