"""Method: which states, which weights. A method is a value that says how a text is written, read and weighted."""

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

__all__ = [
    "CATALOGUE",
    "Method",
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
