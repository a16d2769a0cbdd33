"""The catalogue: every method that has a name of its own, by that name."""

from __future__ import annotations

from collections.abc import Callable

from .averages import classical, ditto, remove_biases, sif, tfidf
from .ensembles import ensemble
from .method import AnyMethod
from .prompts import bellm, prompt, token_prepending
from .repetition import echo, reba
from .selection import scsp

METHODS = (classical, echo, reba, ditto, prompt, bellm, token_prepending, scsp, tfidf, sif, remove_biases, ensemble)

CATALOGUE: dict[str, Callable[..., AnyMethod]] = {f.__name__: f for f in METHODS}
"""Every method by name."""
