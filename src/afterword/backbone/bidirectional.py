"""Which layers use bidirectional attention, and how they are combined with the rest (BeLLM, section 3.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from ..errors import MethodError, NoSuchHead

Couple = Literal["replace", "add", "add_postnorm", "add_embedding", "angle031"]
AUTO: Literal["auto"] = "auto"


@dataclass(frozen=True)
class Sight:
    """Layers with bidirectional attention: their tokens also attend to later tokens ("see both ways").

    Args:
        last: this many layers at the end; "auto" means those behind a model's turning point, and must be resolved
            for a model before use (`afterword.analysis.turning.resolve`).
        layers: or these, from 0; not both.
        couple: "replace" makes the layers themselves bidirectional. The others are variants of Equation 5, the sum
            of the causal stream and a second, bidirectional stream through the same layers:
            "add" starts the second stream at the first of the layers and norms the sum,
            "add_postnorm" norms each stream before the sum,
            "add_embedding" starts it at the embeddings (Equation 5 to the letter),
            "angle031" does so too, but the causal stream stops before those layers (angle_emb 0.3.1).

    >>> Sight(last=1).resolve(12)
    frozenset({11})
    """

    last: int | Literal["auto"] = 0
    layers: tuple[int, ...] = ()
    couple: Couple = "replace"

    def __post_init__(self) -> None:
        """Validate the options."""
        if self.couple not in get_args(Couple):
            raise MethodError(f"couple={self.couple!r}: choose one of {', '.join(get_args(Couple))}")
        if self.last != AUTO and (not isinstance(self.last, int) or self.last < 0):
            raise MethodError(f"last={self.last!r}: give how many layers at the end are bidirectional, or 'auto'")
        if self.last and self.layers:
            raise MethodError(f"last={self.last} and layers={list(self.layers)}: give one of the two")
        object.__setattr__(self, "layers", tuple(sorted(set(self.layers))))

    def __bool__(self) -> bool:
        """Whether anything differs from the model without a sight."""
        return bool(self.last or self.layers or self.couple == "angle031")

    def resolve(self, layers: int) -> frozenset[int]:
        """The indices of the bidirectional layers in a model with this many layers.

        Raises:
            NoSuchHead: the model has fewer layers.
            MethodError: `last` is "auto".
        """
        if self.last == AUTO:
            raise MethodError(
                "bellm(last='auto') needs pairs to find the number with: give dev to train; "
                "`afterword analyse turning-point` prints it, afterword.analysis.turning.resolve sets it"
            )
        if self.last > layers:
            raise NoSuchHead(f"last={self.last}: the model has {layers} layers")
        if wrong := [i for i in self.layers if not 0 <= i < layers]:
            raise NoSuchHead(f"layer {wrong[0]} does not exist: the model has layers 0 to {layers - 1}")
        return frozenset(self.layers) if self.layers else frozenset(range(layers - self.last, layers))

    def plain(self, layers: int) -> Sight:
        """The equivalent simplest sight: if all layers are bidirectional, "angle031" has no causal stream to add."""
        if self.couple == "angle031" and len(self.resolve(layers)) == layers:
            return Sight(layers=tuple(range(layers)))
        return self

    def first(self, layers: int) -> int:
        """The layer at which the second stream begins.

        Raises:
            MethodError: the layers are not the last ones, which two streams need.
        """
        chosen = self.resolve(layers)
        if chosen != frozenset(range(layers - len(chosen), layers)):
            raise MethodError(f"couple={self.couple!r} sums two streams at the end: layers must be the last ones")
        return layers - len(chosen)
