"""What is tried: ways of writing a text, of weighing its tokens and of choosing their states, each a `Method`."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from torch import Tensor

from ..backbone.attention_taps import Diagonals, Tap
from ..backbone.backbone import Backbone, Layer
from ..backbone.bidirectional import Sight
from ..errors import InputError, MethodError
from ..methods import Method, bellm, classical, ditto, echo, prompt, reba, tfidf
from ..methods.states import States
from ..methods.weights import Plain, SelfAttention, Weighting
from ..post import Affine, RemoveTop, Whiten
from ..shapes import Rows
from ..text.batch import Group
from ..text.layout import Layout

Heads = Literal["paper", "all", "none"]
Make = partial[Method]

PLAIN = Plain("mean", "all", True)
DITTO = ("first_last", "last", "static")
"""The states that Ditto weights in its paper (Table 1)."""


@dataclass(frozen=True)
class Grid:
    """What to try besides mean, first and last token of the text as it is.

    Args:
        templates: names of `TEMPLATES`, or strings with {text}; each is a forward of its own.
        copies: how often the text stands there, for Echo and, on causal models, ReBA; None is 1 and 2 on a causal
            model, where they share a forward, and 1 on others.
        both_ways: so many layers at the end see both ways (BeLLM); each number is a forward of its own.
        heads: every head's diagonal (Ditto) on the three states of the "paper", on "all" states, or on "none".
        posts: steps that are fitted to the leaders' vectors. Centring needs no mention: every recipe is tried so.
    """

    templates: tuple[str, ...] = ()
    copies: tuple[int, ...] | None = None
    both_ways: tuple[int, ...] = ()
    heads: Heads = "paper"
    posts: tuple[Affine, ...] = (Whiten(), RemoveTop())


@dataclass(frozen=True)
class Recipe:
    """A method and what is done to its vectors.

    Args:
        method: how a text becomes a vector.
        post: "none", "centre", "whiten" ..., as `parse_post` reads it.
        spec: the method as `parse_method` reads it.

    >>> Recipe(classical(), "none").level, Recipe(classical("last", states="layer:1"), "centre").level
    (0, 3)
    """

    method: Method
    post: str = "none"
    spec: str = ""

    @property
    def level(self) -> int:
        """How far it is from the mean of the last states: layout, weights, states, sight and post count one each."""
        m = self.method
        changed = (m.layout != Layout(), m.weigh != PLAIN, m.states != States(), bool(m.sight), self.post != "none")
        return sum(changed)

    @property
    def of_ditto(self) -> bool:
        """Whether it is one head's diagonal and nothing behind it."""
        return self.post == "none" and isinstance(self.method.weigh, SelfAttention)

    def __str__(self) -> str:
        """As a table shows it."""
        return self.spec if self.post == "none" else f"{self.spec} + {self.post}"


@dataclass(frozen=True)
class Family:
    """Methods of one layout and one sight that weigh the same states: one product of matrices serves them all.

    Args:
        weigh: what gives the rows of weights, fitted.
        rows: per row of weights, from the kind of its states to the method.
        kinds: of states.
    """

    weigh: tuple[Weighting, ...]
    rows: tuple[Make, ...]
    kinds: tuple[str, ...]

    @property
    def lead(self) -> Method:
        """One of the methods: its layout and its sight are those of all."""
        return self.rows[0](states=self.kinds[0])

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The layers whose states are read."""
        return tuple(dict.fromkeys(layer for kind in self.kinds for layer in States(kind).layers))

    def method(self, row: int, kind: int) -> tuple[Method, str]:
        """One of them, and how it is spelled."""
        made = self.rows[row](states=self.kinds[kind])
        if not made.weigh.fitted:
            made = replace(made, weigh=self.weigh[row])
        return made, spell(self.rows[row], self.kinds[kind])

    def methods(self) -> Iterator[tuple[Method, str]]:
        """All of them: row by row, in each the kinds of states."""
        return (self.method(row, kind) for row in range(len(self.rows)) for kind in range(len(self.kinds)))


@dataclass(frozen=True)
class EveryHead(Weighting):
    """The weights of `ditto` for every head of every layer at once, L H rows."""

    reads_attention = True

    def tap(self, *_: object) -> Tap:
        """All diagonals."""
        return Diagonals()

    def __call__(self, group: Group, targets: Rows, reading: Tensor | None) -> Tensor:
        """A_kk, read as (G, L, H, n), on the targets (G, L H, n)."""
        assert reading is not None
        return targets * reading.flatten(1, 2)


def families(grid: Grid, backbone: Backbone, frequency: Weighting | None = None) -> list[Family]:
    """What there is to try on a model.

    Args:
        grid: what is asked for.
        backbone: the model.
        frequency: TF-IDF, fitted; without it, it is not tried.

    Raises:
        InputError: the grid asks for what makes no sense.
        MethodError: a template or a number that no method takes.
        AttentionNotSeen: both-ways layers, or ReBA asked for, on a model that does not show its attention.
    """
    facts = backbone.facts
    kinds = tuple(_kinds(facts.layers, _table_fits(backbone)))
    special = bool(backbone.tokenizer.prefix or backbone.tokenizer.suffix)
    plain: list[Make] = [partial(classical, "mean"), partial(classical, "last")]
    plain += [partial(classical, "mean", pool_special_tokens=False)] if special else []
    plain += [] if facts.causal else [partial(classical, "cls")]
    first = _family(plain, kinds)
    if frequency is not None:
        first = Family((*first.weigh, frequency), (*first.rows, partial(tfidf)), kinds)
    found = [first]
    for copies in grid.copies if grid.copies is not None else ((1, 2) if facts.causal else (1,)):
        rows: list[Make] = [partial(echo, copies, pool) for pool in ("mean", "last") if copies > 1]
        if facts.causal and facts.attention:
            rows += [partial(reba, copies, pool) for pool in ("mean", "last") if copies > 1 or pool == "mean"]
        found += [_family(rows, kinds)] if rows else []
    if grid.heads != "none" and facts.attention:
        heads = [partial(ditto, (layer, head)) for layer in range(facts.layers) for head in range(facts.heads)]
        wanted = kinds if grid.heads == "all" else tuple(k for k in DITTO if k in kinds)
        found.append(Family((EveryHead("sum", "all", True),), tuple(heads), wanted))
    found += [_family([partial(prompt, t, pool) for pool in (None, "mean")], kinds) for t in grid.templates]
    if conditioned := [f.lead for f in found if "condition" in f.lead.layout.fields]:
        raise MethodError(f"{conditioned[0]} needs a condition per text, and pairs have none")
    found += _both_ways(grid, backbone, kinds)
    return found


def _both_ways(grid: Grid, backbone: Backbone, kinds: tuple[str, ...]) -> list[Family]:
    if grid.both_ways and not backbone.facts.causal:
        raise InputError(f"both_ways={grid.both_ways}: {backbone.facts.kind} sees both ways already")
    if grid.both_ways:
        backbone.require(False, Sight(last=1))
    for last in grid.both_ways:
        if not 1 <= last <= backbone.facts.layers:
            raise InputError(f"both_ways={last}: the model has {backbone.facts.layers} layers")
    return [
        # with one layer the last token is what it was: it saw everything already
        _family([partial(bellm, n, pool, template=None) for pool in ("mean", "last") if n > 1 or pool == "mean"], kinds)
        for n in grid.both_ways
    ]


def _family(rows: list[Make], kinds: tuple[str, ...]) -> Family:
    return Family(tuple(make().weigh for make in rows), tuple(rows), kinds)


def _kinds(layers: int, table: bool) -> Iterator[str]:
    """Single layers from the last down, the word table, and means of two: the first with each, and two more."""
    yield "last"
    yield from (f"layer:{k}" for k in range(layers - 1, -1, -1))
    yield from ["static"] if table else []
    yield "first_last"
    yield from (f"layer:0+{k}" for k in range(layers - 1, 0, -1))
    yield from ["first_last_h1"] if layers > 1 else []
    yield from ["last_two"] if layers > 2 else []


def _table_fits(backbone: Backbone) -> bool:
    """Whether rows of the word table are as wide as states; ELECTRA's and ALBERT's are not always."""
    return backbone.table_width == backbone.facts.width


def spell(make: Make, states: str) -> str:
    """A method as `parse_method` reads it, what is not said being the default.

    >>> spell(partial(echo, 3, "last"), "layer:0+2"), spell(partial(ditto, (0, 9)), "last")
    ('echo:copies=3,pool=last,states=layer:0+2', 'ditto:states=last')
    """
    signature = inspect.signature(make.func)
    given = signature.bind(*make.args, **make.keywords, states=states).arguments
    options = [
        f"{key}={_value(value)}"
        for key, value in given.items()
        if _value(value) != _value(signature.parameters[key].default)
    ]
    return make.func.__name__ + (":" + ",".join(options) if options else "")


def _value(value: object) -> str:
    if isinstance(value, tuple):
        return f"{value[0] + 1}-{value[1] + 1}"  # a head, from 1
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False) if set(value) & set(',"') else value
    return str(value).lower()
