"""Random texts in one batch, their vectors, and how far two sets of vectors are apart."""

from __future__ import annotations

import warnings

import numpy as np
import torch
from torch import Tensor

from afterword.backbone.backbone import Backbone
from afterword.encoder import Encoder
from afterword.methods import Method
from afterword.text.batch import Batch, lay
from afterword.text.segments import Segment, TokenizedText

LENGTHS = (5, 23, 1, 12, 5, 9)
WORD = (2, 4)


def texts(seed: int = 3) -> list[list[int]]:
    """Random content tokens, several lengths, in one batch."""
    g = torch.Generator().manual_seed(seed)
    return [torch.randint(10, 260, (n,), generator=g).tolist() for n in LENGTHS]


def batch_of(ids: list[list[int]]) -> Batch:
    """Bare texts laid end to end."""
    return lay([TokenizedText((Segment(list(t), ((0, len(t)),)),)) for t in ids])


def by_text(batch: Batch, flat: Tensor) -> list[Tensor]:
    """A flat tensor's part of each text, in the order given."""
    found = {}
    for group in batch.groups:
        found.update(zip(group.text.tolist(), group.slice(flat), strict=True))
    return [found[i] for i in range(batch.texts)]


def encode(backbone: Backbone, method: Method, texts: list[list[int]]) -> np.ndarray:
    """Vectors of all texts in one batch; what a method says of a model it was not made for is known here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Encoder(backbone, method).encode(texts)


def difference(got: np.ndarray, wanted: np.ndarray) -> float:
    """The largest difference of any component, of the largest component of its vector."""
    return float((np.abs(got - wanted).max(1) / np.abs(wanted).max(1)).max())
