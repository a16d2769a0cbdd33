"""Vectors of words in their texts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ..backbone.backbone import Backbone
from ..methods import Method
from ..post import Post
from ..text.batch import lay
from ..text.inputs import check_ids, check_written
from ..text.layout import Text
from ..text.words import Word, place
from .batches import longest_first
from .forward import vectors
from .limits import Cuts, Limits
from .outputs import Array


def word_vectors(
    backbone: Backbone,
    method: Method,
    texts: Sequence[Text],
    words: Sequence[Sequence[Word]],
    limits: Limits,
    post: Sequence[Post] = (),
) -> list[Array]:
    """Vectors of the words of each text.

    Returns:
        Per text (words, D).

    Raises:
        WordNotFound: one is not in its text, or was cut off.
    """
    check_ids(texts, backbone.vocabulary_size)
    writings = method.layout.write(texts, backbone.tokenizer, limits.max_length, offsets=True)
    check_written(writings, backbone.tokenizer, backbone.vocabulary_size)
    copy = method.layout.total_copies if method.weigh.for_words().copy in ("last", "tail") else 1
    tokens = place(words, texts, writings, copy)
    cuts = Cuts()
    cuts.note(writings, limits)
    rows: list[Array] = [np.zeros((0, backbone.facts.width), np.float32)] * len(texts)

    def run(indices: list[int]) -> Tensor:
        batch = lay([writings[i] for i in indices], backbone.device)
        return vectors(backbone, [method], batch, [tokens[i] for i in indices])[0]

    sizes = [w.size for w in writings]
    wanted = longest_first(sizes, [i for i, w in enumerate(words) if w])
    with torch.no_grad():
        for indices, made in limits.budget(backbone.device).batches(sizes, run, wanted):
            for i, vector in zip(indices, made, strict=True):
                found = vector[: len(tokens[i])]
                for step in post:
                    found = step(found)
                rows[i] = found.cpu().numpy()
    cuts.warn(limits)
    return rows
