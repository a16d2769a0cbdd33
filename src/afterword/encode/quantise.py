"""Quantise vectors, by sentence-transformers' own function."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import InputError, MissingExtra


def quantise(vectors: Any, precision: str) -> Any:
    """Quantise vectors.

    Args:
        vectors: (n, D), float32.
        precision: "int8" or "uint8", which give (n, D); "binary" or "ubinary", which give (n, D / 8).

    Raises:
        InputError: a row is NaN, or there is one vector only, which has no range.
        MissingExtra: sentence-transformers is not installed.
    """
    try:
        from sentence_transformers import quantize_embeddings
    except ImportError as e:
        raise MissingExtra("sentence-transformers>=5.4", "st") from e
    if np.isnan(vectors).any():
        raise InputError(f"a row of NaN has no {precision}: leave empty texts out, or precision='float32'")
    bits = precision.endswith("binary")
    if not len(vectors):  # older versions compute ranges, which no vectors have
        width = -(-vectors.shape[1] // 8) if bits else vectors.shape[1]
        return np.zeros((0, width), np.uint8 if precision.startswith("u") else np.int8)
    if len(vectors) == 1 and not bits:
        raise InputError(
            f"precision={precision!r} of one text: the ranges are those of the call's own vectors; give at least two "
            "texts, or take precision='float32' and sentence-transformers' quantize_embeddings with ranges of your own"
        )
    try:
        return quantize_embeddings(vectors, precision=precision)
    except ValueError as e:
        raise InputError(f"precision={precision!r}: {str(e).splitlines()[0]}") from None
