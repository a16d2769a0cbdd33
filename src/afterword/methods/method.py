"""`Method`, the four values that define an embedding method; and a check that a model supports it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..backbone.bidirectional import Sight
from ..errors import MethodError
from ..text.layout import Layout
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
        sight: which layers use bidirectional attention.
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


def check_method(backbone: Backbone, method: Method) -> None:
    """Check that a model supports a method; warn of options without effect.

    Raises:
        MethodError: it does not.
    """
    facts = backbone.facts
    method.states.check(facts.states)
    if method.states.truncates:
        _ = backbone.stack  # found once, before several threads come
    backbone.require(method.weigh.reads_attention, method.sight)
    method.weigh.check(facts.layers, facts.heads, backbone.vocabulary_size)
    if method.sight:
        method.sight.resolve(facts.layers)
        if not facts.causal:
            warnings.warn(f"{facts.kind} is bidirectional already: bellm changes nothing but the prompt", stacklevel=4)
    if isinstance(method.weigh, SelfAttention) and facts.causal:
        warnings.warn(
            f"ditto on {facts.kind}, which is causal: the first token attends to nothing but itself, so that "
            "A_11 = 1 always; the paper's method is for encoders",
            stacklevel=4,
        )


def by_name(methods: Mapping[str, Method] | Sequence[Method]) -> dict[str, Method]:
    """Methods by name; the methods of a list go by their own names.

    Raises:
        MethodError: two methods of a list have the same name.
    """
    if isinstance(methods, Mapping):
        return dict(methods)
    named: dict[str, Method] = {}
    for method in methods:
        if method.name in named:
            raise MethodError(f"two methods are named {method.name!r}: give a dict, with a name of your own for each")
        named[method.name] = method
    return named
