"""Embedding methods: a method says how a text is written, which states are read and how tokens are weighted."""

from ..backbone.bidirectional import Sight
from ..text.layout import Layout
from .catalogue import (
    CATALOGUE,
    bellm,
    classical,
    ditto,
    echo,
    parse_head,
    prompt,
    reba,
    remove_biases,
    tfidf,
    warn_if_idle,
)
from .method import Method
from .states import States
from .weights import Weighting

__all__ = [
    "CATALOGUE",
    "Layout",
    "Method",
    "Sight",
    "States",
    "Weighting",
    "bellm",
    "classical",
    "ditto",
    "echo",
    "parse_head",
    "prompt",
    "reba",
    "remove_biases",
    "tfidf",
    "warn_if_idle",
]
