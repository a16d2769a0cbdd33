"""Post-processing of vectors: normalise, truncate, dense layers; and whitening and others, fitted to vectors."""

from .components import Affine, Centre, RemoveMean, RemoveTop, Standardise, Whiten
from .embed_filter import EmbedFilter, resolved
from .flow import FittedFlow, Flow
from .glow import Glow
from .linear import ACTIVATIONS, Dense, Normalise, Post, Truncate, after, width_after
from .moments import Moments
from .serialize import POSTS, parse_post, spelled
from .unfitted import Unfitted

__all__ = [
    "ACTIVATIONS",
    "POSTS",
    "Affine",
    "Centre",
    "Dense",
    "EmbedFilter",
    "FittedFlow",
    "Flow",
    "Glow",
    "Moments",
    "Normalise",
    "Post",
    "RemoveMean",
    "RemoveTop",
    "Standardise",
    "Truncate",
    "Unfitted",
    "Whiten",
    "after",
    "parse_post",
    "resolved",
    "spelled",
    "width_after",
]
