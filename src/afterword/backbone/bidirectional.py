"""Which layers see both ways, and how they are coupled to the rest (BeLLM, section 3.2)."""

from __future__ import annotations

import copy
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, get_args

from torch import Tensor, nn

from ..errors import MethodError, NoSuchHead, UnsupportedModel
from .attention_masks import Plan, current

Couple = Literal["replace", "add", "add_postnorm", "add_embedding", "angle031"]
AUTO: Literal["auto"] = "auto"


@dataclass(frozen=True)
class Sight:
    """Layers whose tokens also see what comes after them.

    Args:
        last: so many layers at the end; "auto" stands for those behind a model's turning point, and can be used
            once it is resolved against a model (`afterword.analysis.turning.resolve`).
        layers: or these, from 0; not both.
        couple: "replace" makes the layers themselves see both ways. The others are readings of Equation 5, a
            sum of the causal stream and a second one through the same layers seeing both ways:
            "add" starts the second stream where the layers begin and norms the sum,
            "add_postnorm" norms each stream before the sum,
            "add_embedding" starts it at the embeddings (Equation 5 to the letter),
            "angle031" does so too, and leaves the causal stream out of those layers (angle_emb 0.3.1).

    >>> Sight(last=1).of(12)
    frozenset({11})
    """

    last: int | Literal["auto"] = 0
    layers: tuple[int, ...] = ()
    couple: Couple = "replace"

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        if self.couple not in get_args(Couple):
            raise MethodError(f"couple={self.couple!r}: choose one of {', '.join(get_args(Couple))}")
        if self.last != AUTO and (not isinstance(self.last, int) or self.last < 0):
            raise MethodError(f"last={self.last!r}: give how many layers at the end see both ways, or 'auto'")
        if self.last and self.layers:
            raise MethodError(f"last={self.last} and layers={list(self.layers)}: give one of the two")
        object.__setattr__(self, "layers", tuple(sorted(set(self.layers))))

    def __bool__(self) -> bool:
        """Whether anything differs from the model as it is."""
        return bool(self.last or self.layers or self.couple == "angle031")

    def of(self, layers: int) -> frozenset[int]:
        """The layers, in a model of so many.

        Raises:
            NoSuchHead: the model has not as many.
            MethodError: their number is still "auto".
        """
        if self.last == AUTO:
            raise MethodError(
                "bellm(last='auto') needs pairs to find the number with: give dev to train; "
                "`afterword analyse turning-point` prints it, afterword.analysis.turning.resolve sets it"
            )
        if self.last > layers:
            raise NoSuchHead(f"last={self.last}: the model has {layers} layers")
        if wrong := [i for i in self.layers if not 0 <= i < layers]:
            raise NoSuchHead(f"layer {wrong[0]} is not there: the model has layers 0 to {layers - 1}")
        return frozenset(self.layers) if self.layers else frozenset(range(layers - self.last, layers))

    def plain(self, layers: int) -> Sight:
        """The same sight in its simplest words: where all layers see both ways, angle_emb 0.3.1 sums nothing."""
        if self.couple == "angle031" and len(self.of(layers)) == layers:
            return Sight(layers=tuple(range(layers)))
        return self

    def first(self, layers: int) -> int:
        """Where the second stream begins, for a coupled sum.

        Raises:
            MethodError: the layers are not the last ones.
        """
        chosen = self.of(layers)
        if chosen != frozenset(range(layers - len(chosen), layers)):
            raise MethodError(f"couple={self.couple!r} sums two streams at the end: layers must be the last ones")
        return layers - len(chosen)


@dataclass(frozen=True)
class Stack:
    """A decoder's layers in order and the norm behind them (None where there is none)."""

    layers: tuple[nn.Module, ...]
    norm: nn.Module | None


@contextmanager
def coupled(stack: Stack, sight: Sight, plan: Plan) -> Iterator[None]:
    """Run the last layers twice, causal and seeing both ways, and sum the two streams (Equation 5)."""
    first = sight.first(len(stack.layers))
    streams = _Streams(plan, sight.couple, first, len(stack.layers))
    hooks = [
        layer.register_forward_hook(streams.layer_hook(i), with_kwargs=True) for i, layer in enumerate(stack.layers)
    ]
    hooks.append(stack.layers[0].register_forward_pre_hook(streams.embed, with_kwargs=True))
    if stack.norm is not None:
        hooks.append(stack.norm.register_forward_hook(streams.after_norm))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


class _Streams:
    """The second stream while a forward runs."""

    def __init__(self, plan: Plan, couple: str, first: int, layers: int) -> None:
        self.plan, self.couple, self.first, self.layers = plan, couple, first, layers
        self.second: Tensor | None = None
        self.busy = False
        self.shelves: dict[int, Any] = {}

    def _rests(self) -> bool:
        """While the second stream runs, and in another thread's forward of the same model."""
        return self.busy or current() is not self.plan

    def embed(self, _: nn.Module, args: tuple[Any, ...], *rest: Any) -> None:
        """Note the embeddings, which Equation 5 calls x.

        Another thread may call a hook just as it is taken away, without the keywords it asked for: it rests anyway.
        """
        if not self._rests() and self.couple in ("add_embedding", "angle031"):
            self.second = _hidden(args, rest[0])

    def layer_hook(self, i: int) -> Any:
        """Run a layer of the second stream right behind the same layer of the first."""

        def hook(layer: nn.Module, args: tuple[Any, ...], *rest: Any) -> Any:
            if self._rests() or (i < self.first and i + 1 < self.layers):
                return None
            kwargs, output = rest
            if i >= self.first:
                if i == self.first and self.couple in ("add", "add_postnorm"):
                    self.second = _hidden(args, kwargs)
                self.second = self._both_ways(layer, args, kwargs)
                if self.couple == "angle031":  # the causal stream stops before these layers
                    output = _with_hidden(output, _hidden(args, kwargs))
            if i + 1 == self.layers and self.couple != "add_postnorm":
                assert self.second is not None
                output = _with_hidden(output, _first(output) + self.second)
            return output

        return hook

    def _both_ways(self, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        assert self.second is not None
        self.busy = self.plan.seeing = True
        args, kwargs = tuple(map(self._own, args)), {name: self._own(value) for name, value in kwargs.items()}
        try:
            if args:
                return _first(layer(self.second, *args[1:], **kwargs))
            return _first(layer(**{**kwargs, "hidden_states": self.second}))
        finally:
            self.busy = self.plan.seeing = False

    def _own(self, value: Any) -> Any:
        """Where layers leave something for later ones (Gemma 3n: keys and values), each stream has its own shelf.

        The second stream's begins with what the layers below both of them have left there.
        """
        if not isinstance(value, MutableMapping):
            return value
        return self.shelves.setdefault(id(value), copy.copy(value))

    def after_norm(self, norm: nn.Module, _: tuple[Any, ...], output: Tensor) -> Tensor | None:
        """Add the second stream's own norm, where each is normed before the sum."""
        if self._rests() or self.couple != "add_postnorm" or self.second is None:
            return None
        if self.second.shape != output.shape:
            raise UnsupportedModel(
                f"couple='add_postnorm' norms what comes out of the last layer, and this model norms something else "
                f"(shapes {tuple(self.second.shape)} and {tuple(output.shape)}): use couple='add'"
            )
        self.busy = True
        try:
            return output + norm(self.second)  # type: ignore[no-any-return]
        finally:
            self.busy = False


def _hidden(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    return args[0] if args else kwargs["hidden_states"]  # type: ignore[no-any-return]


def _first(output: Any) -> Tensor:
    return output[0] if isinstance(output, tuple) else output  # type: ignore[no-any-return]


def _with_hidden(output: Any, hidden: Tensor) -> Any:
    return (hidden, *output[1:]) if isinstance(output, tuple) else hidden
