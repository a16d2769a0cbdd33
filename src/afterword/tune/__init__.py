"""Find the best embedding recipe for a model on scored pairs, with one forward pass per text and layout."""

from .heads import HeadMap, head_map, label_free
from .layers import CRITERIA, LayerTable, layers_without_labels
from .recipes import Grid, Recipe
from .tuning import Tuned, score, tune

__all__ = [
    "CRITERIA",
    "Grid",
    "HeadMap",
    "LayerTable",
    "Recipe",
    "Tuned",
    "head_map",
    "label_free",
    "layers_without_labels",
    "score",
    "tune",
]
