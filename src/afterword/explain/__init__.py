"""Which words made a score: a cosine divided over pairs of words, and pictures of it."""

from .explanation import Explanation, Pair
from .parts import TextParts, text_parts

__all__ = ["Explanation", "Pair", "TextParts", "text_parts"]
