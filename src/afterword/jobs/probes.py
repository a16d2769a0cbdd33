"""Probe vectors: eight fixed texts, whose vectors show whether two encoders embed alike.

They are stored beside vectors. An encoder that embeds the texts again finds out whether its vectors can be compared
with the stored ones, also where a name or a hash cannot tell: for a changed file, another type or a remote server.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from .write_vectors import Array

TOLERANCE = 1e-4
"""The largest difference of probe vectors that agree, as a share of their length."""

TEXTS = (
    "The bank raised its rates.",
    "We walked along the bank of the river.",
    "是的，银行昨天提高了利率。",
    "12 + 30 = 42; 3.14159; 2026-11-22; 0x1F",
    "👩‍👩‍👧 🎉 ❤️",
    "def add(a, b):\n    return a + b",
    "no",
    "It had rained for a week, and the river stood so high that nobody dared to cross it; "
    "the old ferryman sat under his roof and told whoever came by of the flood that his father had seen. " * 4,
)


class _Embedder(Protocol):
    method: Any

    def encode(self, texts: Any, **options: Any) -> Any:
        """Vectors (n, D)."""


def probes(encoder: _Embedder) -> Array:
    """The vectors of the probe texts (8, D), as ``encoder.encode`` gives them; NaN for one that holds no token.

    >>> from afterword import Encoder
    >>> probes(Encoder.load("afterword-mini")).shape
    (8, 256)
    """
    wanted = any("condition" in method.layout.fields for method in encoder.method.members)
    conditions = ["topic"] * len(TEXTS) if wanted else None
    vectors: Array = encoder.encode(list(TEXTS), conditions=conditions, on_long="ignore", on_empty="nan")
    return vectors


def probe_difference(stored: Array, found: Array) -> float:
    """The largest difference of two sets of probe vectors (8, D), as a share of a vector's length.

    Infinite if their shapes differ, or if a vector is NaN in one of them only.

    >>> probe_difference(np.array([[3.0, 4.0]]), np.array([[3.0, 4.5]]))
    0.1
    """
    if stored.shape != found.shape:
        return float("inf")
    stored, found = stored.astype(np.float64), found.astype(np.float64)
    gone, too = np.isnan(stored).any(1), np.isnan(found).any(1)
    if not np.array_equal(gone, too):
        return float("inf")
    lengths = np.maximum(np.linalg.norm(stored, axis=1), np.finfo(np.float32).tiny)
    shares = np.abs(stored - found).max(1, initial=0) / lengths
    return float(shares[~gone].max(initial=0))


def probes_agree(stored: Array, found: Array) -> bool:
    """Whether two sets of probe vectors (8, D) are of encoders whose vectors can be compared."""
    return probe_difference(stored, found) <= TOLERANCE
