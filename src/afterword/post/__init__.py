"""Post-processing of vectors: normalising, truncation, dense layers, and fitted steps such as whitening."""

from .components import Affine, Centre, Moments, RemoveMean, RemoveTop, Standardise, Whiten
from .embed_filter import EmbedFilter, resolved
from .flow import FittedFlow, Flow, Glow
from .serialize import POSTS, parse_post, spelled
from .steps import Dense, Normalise, Post, Truncate, Unfitted, after, width_after

__all__ = [
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
