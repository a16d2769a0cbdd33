"""Which methods can share a forward."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..backbone.backbone import Backbone
from ..backbone.bidirectional import Sight
from ..methods import Method
from ..methods.code_hash import is_own
from ..text.layout import Layout


@dataclass(frozen=True)
class Share:
    """Methods that share a forward, and how its texts are written."""

    layout: Layout
    methods: tuple[int, ...]


def shares(methods: Sequence[Method], backbone: Backbone) -> list[Share]:
    """Which methods share a forward.

    Methods of one layout and one sight do. Beyond that, on a causal model, what is nothing but copies of the text
    shares the forward with most copies: a first copy does not know of a second. A token behind the text would, and so
    would a first copy whose rotary frequencies depend on how long the whole is. A weighting of the user's own may
    look at tokens that ours leave out: it shares with others of its kind, in the same layout.
    """
    groups: dict[tuple[object, ...], list[int]] = {}
    alike = backbone.facts.causal and backbone.facts.split_at is None
    for i, method in enumerate(methods):
        layout, own = method.layout, is_own(type(method.weigh))
        trails = layout.add_special_tokens and bool(backbone.tokenizer.suffix)
        free = layout.plain and alike and not trails and not method.sight and not own
        key = replace(layout, copies=1, join=None) if free else layout
        groups.setdefault((key, method.sight or Sight(), own), []).append(i)
    made = []
    for members in groups.values():
        lead = max((methods[i].layout for i in members), key=lambda lay: lay.total_copies)
        made.append(Share(lead, tuple(members)))
    return made
