"""Training: from a decoder and rows of texts to an encoder, on sentence-transformers' trainer.

>>> from afterword.train import Settings
>>> Settings(rank=8).learning_rate
0.0002
"""

from __future__ import annotations

from .run import train
from .settings import Settings

__all__ = ["Settings", "train"]
