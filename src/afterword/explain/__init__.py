"""Which words made a score: a cosine divided over pairs of words, and pictures for notebooks and pages."""

from .explanation import Explanation, Pair
from .parts import TextParts, text_parts
from .shown import TokenAttention, TokenWeights, WordVectors

__all__ = ["Explanation", "Pair", "TextParts", "TokenAttention", "TokenWeights", "WordVectors", "text_parts"]
