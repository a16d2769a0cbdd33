"""`Method`, the four values that define an embedding method; `Ensemble`, several methods; checks by a model."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from ..backbone.bidirectional import Sight
from ..backbone.facts import inside
from ..errors import MethodError, warn
from ..spelling import check_fields
from ..text.layout import Layout
from ..text.placeholder import PLACEHOLDER
from .options import choose
from .states import States
from .weights import Plain, SelfAttention, Weighting

if TYPE_CHECKING:
    from ..backbone.backbone import Backbone


@dataclass(frozen=True)
class Method:
    """An embedding method: how a text becomes a vector.

    Args:
        layout: how the text is written (template, copies, special tokens, truncation).
        states: which hidden states v_k are read.
        weigh: how tokens are weighted, w_k.
        sight: which layers use bidirectional attention, and what else differs inside the model.
        name: its name in tables.
    """

    layout: Layout = Layout()
    states: States = States()
    weigh: Weighting = Plain()
    sight: Sight = Sight()
    name: str = field(default="custom", compare=False)

    def __str__(self) -> str:
        """Its name."""
        return self.name

    @property
    def members(self) -> tuple[Method, ...]:
        """The method itself; an `Ensemble` has several."""
        return (self,)

    def changed(self, change: Callable[[Method], Method]) -> Method:
        """The changed method; an `Ensemble` changes each of its methods."""
        return change(self)

    def width(self, backbone: Backbone) -> int:
        """D, the number of components of a vector."""
        return self.states.width(backbone)


@dataclass(frozen=True)
class Ensemble:
    """Several methods whose vectors of a text, v_1 to v_m, are joined into one.

    Args:
        methods: at least one.
        join: "mean" is the weighted mean, sum of w_i v_i / sum of w_i; "concat" is (sqrt(w_1) v_1, ..., sqrt(w_m) v_m),
            whose dot products are the weighted sums of the methods' dot products.
        weights: w_i above 0, one per method; None = 1 each.
        normalise: scale each v_i to length 1 first.
        name: its name in tables.
    """

    methods: tuple[Method, ...]
    join: Literal["mean", "concat"] = "mean"
    weights: tuple[float, ...] | None = None
    normalise: bool = False
    name: str = field(default="ensemble", compare=False)

    def __post_init__(self) -> None:
        """Validate the values."""
        methods = self.methods
        if not isinstance(methods, list | tuple) or not methods:
            raise MethodError(f"ensemble: methods={methods!r:.60}: give a list of one method or more")
        if other := [method for method in methods if not isinstance(method, Method)]:
            why = "is an ensemble: name its methods instead" if isinstance(other[0], Ensemble) else "is not a method"
            raise MethodError(f"ensemble: {str(other[0])!r:.60} {why}")
        object.__setattr__(self, "methods", tuple(methods))
        choose("join", self.join, ("mean", "concat"))
        check_fields(self)
        if self.weights is not None:
            if len(self.weights) != len(methods):
                raise MethodError(
                    f"ensemble: {len(self.weights)} weights for {len(methods)} methods: give one per method"
                )
            if wrong := [weight for weight in self.weights if not 1e-30 <= weight <= 1e30]:
                raise MethodError(f"ensemble: a weight is {wrong[0]!r:.60}: give a number above 0, 1e-30 to 1e30")
            object.__setattr__(self, "weights", tuple(map(float, self.weights)))

    def __str__(self) -> str:
        """Its name."""
        return self.name

    @property
    def members(self) -> tuple[Method, ...]:
        """Its methods, as a `Method` has itself."""
        return self.methods

    def changed(self, change: Callable[[Method], Method]) -> Ensemble:
        """The ensemble with each of its methods changed."""
        return replace(self, methods=tuple(map(change, self.methods)))

    def factors(self) -> list[float]:
        """What each method's vector is multiplied by."""
        weights = self.weights or (1.0,) * len(self.methods)
        return [w / sum(weights) if self.join == "mean" else math.sqrt(w) for w in weights]

    def width(self, backbone: Backbone) -> int:
        """D, the number of components of a vector; raises MethodError if the mean is of vectors of other widths."""
        widths = [method.width(backbone) for method in self.methods]
        if self.join == "concat":
            return sum(widths)
        i = next((i for i, width in enumerate(widths) if width != widths[0]), 0)
        if i:
            both = f"{self.methods[0]} has vectors of {widths[0]} components and {self.methods[i]} of {widths[i]}"
            raise MethodError(f"{self}: {both}, which have no mean: give join='concat'")
        return widths[0]


AnyMethod = Method | Ensemble
"""How a text becomes a vector: by one method, or by several."""


def one_method(method: AnyMethod, what: str) -> Method:
    """The method; raises MethodError if it is an ensemble, which `what` cannot take."""
    if isinstance(method, Ensemble):
        raise MethodError(f"{what} takes one method, and {method} joins {len(method.methods)}: give one of them alone")
    return method


def check_method(backbone: Backbone, method: AnyMethod) -> None:
    """Check that a model supports a method, or each one of an ensemble; warn of options without effect.

    Raises:
        MethodError: it does not.
    """
    _refuse_text(method)
    for member in method.members:
        _check(backbone, member)
    method.width(backbone)


def _refuse_text(method: object) -> None:
    if isinstance(method, str):
        raise MethodError(f"method={method!r} is a text: give parse_method({method!r}), or an object such as reba()")


def _check(backbone: Backbone, method: Method) -> None:
    facts = backbone.facts
    method.layout.check(backbone.tokenizer)
    method.states.check(facts.states)
    if method.states.truncates:
        _ = backbone.stack  # found once, before several threads come
    backbone.require(method.weigh.reads_attention, method.sight)
    if any(map(inside, method.states.layers)):
        _check_inside(backbone, method)
    method.weigh.check(facts.layers, facts.heads, backbone.vocabulary_size)
    if method.sight.carry and not method.layout.slots:
        raise MethodError(
            f"template {method.layout.template!r} has no {PLACEHOLDER}, to which a state could be carried: write it in "
            "front of {text}, with a blank on both sides"
        )
    if method.sight.both_ways:
        method.sight.resolve(facts.layers)
        if not facts.causal:
            warn(f"{facts.kind} is bidirectional already: bellm changes nothing but the prompt")
    if isinstance(method.weigh, SelfAttention) and facts.causal:
        warn(
            f"ditto on {facts.kind}, which is causal: the first token attends to nothing but itself, so that "
            "A_11 = 1 always; the paper's method is for encoders"
        )


def _check_inside(backbone: Backbone, method: Method) -> None:
    """Check that what is read inside layers can be, by a short forward: found once, before several threads come."""
    if method.sight.couple != "replace":
        raise MethodError(
            f"states={method.states.kind!r} is not defined for two streams (couple={method.sight.couple!r}): use "
            "couple='replace'"
        )
    method.states.width(backbone)


def by_name(methods: Mapping[str, AnyMethod] | Sequence[AnyMethod]) -> dict[str, AnyMethod]:
    """Methods by name; the methods of a list go by their own names.

    Raises:
        MethodError: two methods of a list have the same name, or one is a text.
    """
    if isinstance(methods, Mapping):
        return dict(methods)
    named: dict[str, AnyMethod] = {}
    for method in methods:
        _refuse_text(method)
        if method.name in named:
            raise MethodError(f"two methods are named {method.name!r}: give a dict, with a name of your own for each")
        named[method.name] = method
    return named
