"""A second, bidirectional stream beside the causal one, layer by layer (BeLLM, Equation 5)."""

from __future__ import annotations

import copy
from collections.abc import Iterator, MutableMapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from ..errors import UnsupportedModel
from .attention_masks import Plan, current
from .bidirectional import Sight


@dataclass(frozen=True)
class Stack:
    """A decoder's layers in order, and its final norm (None if it has none)."""

    layers: tuple[nn.Module, ...]
    norm: nn.Module | None


@contextmanager
def coupled(stack: Stack, sight: Sight, plan: Plan) -> Iterator[None]:
    """Run the last layers twice, causal and bidirectional, and add the two streams (Equation 5)."""
    first = sight.first(len(stack.layers))
    streams = _Streams(plan, sight.couple, first, len(stack.layers))
    with ExitStack() as hooks:
        for i, layer in enumerate(stack.layers):
            hooks.enter_context(layer.register_forward_hook(streams.layer_hook(i), with_kwargs=True))
        hooks.enter_context(stack.layers[0].register_forward_pre_hook(streams.embed, with_kwargs=True))
        if stack.norm is not None:
            hooks.enter_context(stack.norm.register_forward_hook(streams.after_norm))
        yield


class _Streams:
    """The second stream while a forward runs."""

    def __init__(self, plan: Plan, couple: str, first: int, layers: int) -> None:
        self.plan, self.couple, self.first, self.layers = plan, couple, first, layers
        self.second: Tensor | None = None
        self.busy = False
        self.caches: dict[int, Any] = {}

    def _inactive(self) -> bool:
        """Whether hooks must do nothing: while the second stream runs, and in another thread's forward."""
        return self.busy or current() is not self.plan

    def embed(self, _: nn.Module, args: tuple[Any, ...], *rest: Any) -> None:
        """Keep the embeddings, which Equation 5 calls x.

        Another thread may call a hook while it is being removed, without keyword arguments: it does nothing then.
        """
        if not self._inactive() and self.couple in ("add_embedding", "angle031"):
            self.second = _hidden(args, rest[0])

    def layer_hook(self, i: int) -> Any:
        """Run a layer of the second stream right behind the same layer of the first."""

        def hook(layer: nn.Module, args: tuple[Any, ...], *rest: Any) -> Any:
            if self._inactive() or (i < self.first and i + 1 < self.layers):
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
        self.busy = self.plan.force_bidirectional = True
        args, kwargs = tuple(map(self._own, args)), {name: self._own(value) for name, value in kwargs.items()}
        try:
            if args:
                return _first(layer(self.second, *args[1:], **kwargs))
            return _first(layer(**{**kwargs, "hidden_states": self.second}))
        finally:
            self.busy = self.plan.force_bidirectional = False

    def _own(self, value: Any) -> Any:
        """The second stream's own cache, where layers pass something to later ones (Gemma 3n: keys and values).

        It starts as a copy of what the layers below both streams have stored.
        """
        if not isinstance(value, MutableMapping):
            return value
        return self.caches.setdefault(id(value), copy.copy(value))

    def after_norm(self, norm: nn.Module, _: tuple[Any, ...], output: Tensor) -> Tensor | None:
        """Norm the second stream by itself and add it, for "add_postnorm"."""
        if self._inactive() or self.couple != "add_postnorm" or self.second is None:
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
