"""What a job will take, from a sample of its texts."""

from __future__ import annotations

import time
from dataclasses import dataclass
from random import Random

import numpy as np

from .items import Item
from .plan import Inputs
from .recipe import JobRecipe

SAMPLE = 256  # texts
SEED = 0


@dataclass(frozen=True)
class Estimate:
    """What a job will take.

    Attributes:
        rows: of the input, and ``rejected`` those of them that hold no text to embed.
        tokens: of all texts, without copies and template.
        seconds: in one process, loading not counted; ``size``: of the vectors and texts, in bytes.
        sample: the number of texts that were embedded to find out.
    """

    rows: int
    rejected: int
    tokens: int
    seconds: float
    size: int
    sample: int


def sampled(inputs: Inputs, most: int = SAMPLE) -> tuple[list[Item], int, int, int]:
    """Texts drawn evenly from all rows (at most so many); the number of rows, of rejected ones, and of characters."""
    random, drawn, rows, rejected, characters = Random(SEED), list[Item](), 0, 0, 0
    for file in range(len(inputs.files)):
        for item in inputs.items(file):
            rows += 1
            if item.problem is not None:
                rejected += 1
                continue
            characters += len(item.text or "")
            if len(drawn) < most:
                drawn.append(item)
            elif (at := random.randrange(rows - rejected)) < most:
                drawn[at] = item
    return drawn, rows, rejected, characters


def estimate(inputs: Inputs, recipe: JobRecipe) -> Estimate:
    """Embed a sample of the texts, and say what all of them will take.

    Raises:
        DataError: a file cannot be read.
        ModelError: the model cannot be loaded.
    """
    items, rows, rejected, characters = sampled(inputs)
    opened = recipe.open()
    empty = opened.encode([], lambda _: None)
    width = sum(a.shape[1] * a.itemsize for a in empty.values())
    if not items:
        return Estimate(rows, rejected, 0, 0.0, rows * width, 0)
    parts = list(opened.split(iter(items)))
    opened.encode(parts[:8], lambda _: None)
    began = time.perf_counter()
    opened.encode(parts, lambda _: None)
    seconds = time.perf_counter() - began
    seen = sum(len(item.text or "") for item in items)
    share = characters / max(seen, 1)
    ids = opened.embedder.encoder.backbone.tokenizer.ids([item.text or "" for item in items])
    tokens = int(np.sum([len(own) for own in ids]) * share)
    chunks = len(parts) / len(items)
    size = int((rows - rejected) * chunks * width + characters)
    return Estimate(rows, rejected, tokens, seconds * share, size, len(items))
