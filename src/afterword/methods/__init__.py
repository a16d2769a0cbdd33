"""Embedding methods: a method says how a text is written, which states are read and how tokens are weighted."""

from ..backbone.bidirectional import Sight
from ..text.layout import Layout
from .averages import classical, ditto, parse_head, remove_biases, sif, tfidf
from .catalogue import CATALOGUE
from .ensembles import ENSEMBLES, ensemble
from .method import AnyMethod, Ensemble, Method, one_method
from .prompts import bellm, prompt, token_prepending, warn_if_idle
from .repetition import echo, reba
from .selection import scsp
from .states import OwnStates, States
from .weights import Weighting

__all__ = [
    "CATALOGUE",
    "ENSEMBLES",
    "AnyMethod",
    "Ensemble",
    "Layout",
    "Method",
    "OwnStates",
    "Sight",
    "States",
    "Weighting",
    "bellm",
    "classical",
    "ditto",
    "echo",
    "ensemble",
    "one_method",
    "parse_head",
    "prompt",
    "reba",
    "remove_biases",
    "scsp",
    "sif",
    "tfidf",
    "token_prepending",
    "warn_if_idle",
]
