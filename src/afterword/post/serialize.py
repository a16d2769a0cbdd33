"""Read and write post-processing steps as text: ``whiten:dimensions=256+normalise``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from ..errors import MethodError
from ..spelling import build, did_you_mean, read_spelling, spell
from .components import Centre, RemoveMean, RemoveTop, Standardise, Whiten
from .embed_filter import EmbedFilter
from .flow import Flow
from .steps import Normalise, Post, Truncate

POSTS: dict[str, type[Post]] = {
    "normalise": Normalise,
    "truncate": Truncate,
    "centre": Centre,
    "whiten": Whiten,
    "remove_top": RemoveTop,
    "remove_mean": RemoveMean,
    "standardise": Standardise,
    "embed_filter": EmbedFilter,
    "flow": Flow,
}
"""The post-processing steps by name."""


def parse_post(text: str) -> tuple[Post, ...]:
    """Read post-processing steps from text.

    Args:
        text: "none", or steps joined by +, each ``name`` or ``name:option=value,option=value``.

    Raises:
        MethodError: there is no such step, or an option is unknown or has a wrong value.

    >>> parse_post("remove_top:k=1+normalise")
    (RemoveTop(k=1, centre=True), Normalise())
    """
    return () if text.strip() == "none" else tuple(_step(part) for part in text.split("+"))


def _step(text: str) -> Post:
    name, options = read_spelling(text, POSTS)
    if name not in POSTS:
        raise MethodError(f"no step {name!r}{did_you_mean(name, POSTS)}: choose none, {', '.join(POSTS)}")
    return build(POSTS[name], options, name)  # type: ignore[no-any-return]


def spelled(steps: Sequence[Post]) -> str:
    """Write steps in the form that `parse_post` reads, for tables. A fitted step appears only as its class name.

    >>> spelled((Whiten(64), Normalise())), spelled(())
    ('whiten:dimensions=64+normalise', 'none')
    """
    return "+".join(map(_spelled, steps)) or "none"


def _spelled(step: Post) -> str:
    name = next((name for name, kind in POSTS.items() if type(step) is kind), None)
    if name is None:
        return type(step).__name__.lower()
    values = {f.name: getattr(step, f.name) for f in fields(step) if getattr(step, f.name) != f.default}  # type: ignore[arg-type]
    return spell(name, values)
