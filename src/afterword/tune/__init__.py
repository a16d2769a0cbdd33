"""Find the best embedding recipe for a model on scored pairs, with one forward per text and layout."""

from .heads import HeadMap, head_map, label_free
from .recipes import Grid, Recipe
from .tuning import Tuned, score, tune

__all__ = ["Grid", "HeadMap", "Recipe", "Tuned", "head_map", "label_free", "score", "tune"]
