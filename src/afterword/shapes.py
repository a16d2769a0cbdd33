"""One-letter axis names for the tensors in signatures.

    N  tokens in a batch, all texts concatenated
    T  texts
    S  segments: tokens that attend to each other (a text is one segment; a chunked text is several)
    G  segments of equal length in a group
    n  tokens in one segment
    R  rows of weights for one text: one for a sentence, or one per word
    C  columns of an attention matrix that a tap reads
    H  attention heads      K  key-value heads
    L  layers               D  width of a hidden state  d  width of a head

The types are jaxtyping's: they document shapes, and tests check them at run time.
"""

from __future__ import annotations

from typing import TypeAlias

from jaxtyping import Float, Int
from torch import Tensor

Tokens: TypeAlias = Int[Tensor, "N"]
States: TypeAlias = Float[Tensor, "N D"]
Rows: TypeAlias = Float[Tensor, "G R n"]
Queries: TypeAlias = Float[Tensor, "G H n d"]
Keys: TypeAlias = Float[Tensor, "G K n d"]
