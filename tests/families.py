"""What the package gives for a family of models, measured against the model's own eager attention."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from tests.eager import MASKING, READING, SEEING, STATES, Eager, word_mean
from tests.tiny import tiny
from torch import Tensor

from afterword.backbone import Backbone
from afterword.batch import Batch, lay
from afterword.encoder import Encoder
from afterword.errors import AttentionNotSeen, UnsupportedModel
from afterword.loading import load_backbone
from afterword.methods import Method, reba
from afterword.writing import Segment, Writing

LENGTHS = (5, 23, 1, 12, 5, 9)
WORD = (2, 4)


@dataclass
class Verdict:
    """Of one family: how it is run, each method's worst relative difference, what it refuses and why."""

    kind: str
    way: str = "refused"
    worst: dict[str, float] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)


def texts(seed: int = 3) -> list[list[int]]:
    """Random content tokens, several lengths, in one batch."""
    g = torch.Generator().manual_seed(seed)
    return [torch.randint(10, 260, (n,), generator=g).tolist() for n in LENGTHS]


def batch_of(ids: list[list[int]]) -> Batch:
    """Bare texts laid end to end."""
    return lay([Writing((Segment(list(t), ((0, len(t)),)),)) for t in ids])


def by_text(batch: Batch, flat: Tensor) -> list[Tensor]:
    """A flat tensor's part of each text, in the order given."""
    found = {}
    for group in batch.groups:
        found.update(zip(group.text.tolist(), group.of(flat), strict=True))
    return [found[i] for i in range(batch.texts)]


def judge(kind: str, folder: Path, dtype: torch.dtype = torch.float32) -> Verdict:
    """Load a tiny model of the family and compare every method that applies."""
    tiny(kind, folder)
    verdict = Verdict(kind)
    try:
        backbone = load_backbone(folder, dtype=dtype)
    except UnsupportedModel as e:
        verdict.refused["every method"] = str(e)
        return verdict
    verdict.way, eager = backbone.facts.way, Eager(folder, dtype)
    methods = {**STATES, **READING, **(SEEING if backbone.facts.causal else {})}
    if eager.tokenizer.mask_token_id is not None:
        methods |= MASKING
    for name, (method, reference) in methods.items():
        try:
            got = encode(backbone, method, texts())
        except AttentionNotSeen as e:
            verdict.refused[name] = str(e)
            continue
        verdict.worst[name] = difference(got, np.stack([reference(eager, t).numpy() for t in texts()]))
    if "reba mean" in verdict.worst:
        verdict.worst["reba word"] = _words(backbone, eager)
    return verdict


def encode(backbone: Backbone, method: Method, texts: list[list[int]]) -> np.ndarray:
    """Vectors of all texts in one batch; what a method says of a model it was not made for is known here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Encoder(backbone, method).encode(texts)


def _words(backbone: Backbone, eager: Eager) -> float:
    long = [t for t in texts() if len(t) >= WORD[1]]
    got = Encoder(backbone, reba(2)).encode_words(long, [WORD] * len(long))
    return difference(got, np.stack([word_mean(eager, t, WORD).numpy() for t in long]))


def difference(got: np.ndarray, wanted: np.ndarray) -> float:
    """The largest difference of any component, of the largest component of its vector."""
    return float((np.abs(got - wanted).max(1) / np.abs(wanted).max(1)).max())
