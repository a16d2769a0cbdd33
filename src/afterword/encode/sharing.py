"""Which methods can share a forward."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..backbone.backbone import Backbone
from ..backbone.bidirectional import NO_SIGHT
from ..methods import Method
from ..methods.code_hash import is_own
from ..text.layout import Layout


@dataclass(frozen=True)
class Share:
    """Methods (by their index) that share a forward, and its layout."""

    layout: Layout
    methods: tuple[int, ...]


def shares(methods: Sequence[Method], backbone: Backbone) -> list[Share]:
    """Which methods share a forward.

    Methods with the same layout and the same bidirectional layers do. In a causal model, so do methods whose input
    is nothing but copies of the text: they share the forward with the most copies, since a first copy cannot attend
    to a second one. This does not hold if a special token follows the text, nor if the rotary frequencies depend on
    the length of the whole input. A user's own weighting may read tokens that ours ignore: it shares a forward only
    with users' own weightings of the same layout.
    """
    groups: dict[tuple[object, ...], list[int]] = {}
    alike = backbone.facts.causal and backbone.facts.split_at is None
    for i, method in enumerate(methods):
        layout, own = method.layout, is_own(type(method.weigh))
        trails = layout.add_special_tokens and bool(backbone.tokenizer.suffix)
        free = layout.plain and alike and not trails and not method.sight and not own
        key = replace(layout, copies=1, join=None) if free else layout
        groups.setdefault((key, method.sight or NO_SIGHT, own), []).append(i)
    result = []
    for members in groups.values():
        longest = max((methods[i].layout for i in members), key=lambda lay: lay.total_copies)
        result.append(Share(longest, tuple(members)))
    return result
