"""One forward per text and layout, every recipe: which way of pooling serves a model best on pairs of one's own."""

from .heads import HeadMap, head_map, label_free
from .recipes import Grid, Recipe
from .tuning import Tuned, score, tune

__all__ = ["Grid", "HeadMap", "Recipe", "Tuned", "head_map", "label_free", "score", "tune"]
