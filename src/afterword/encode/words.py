"""Vectors of words in context."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..backbone.backbone import Backbone
from ..methods import Method
from ..post import Post, after
from ..text.batch import Batch
from ..text.inputs import check_ids, check_written
from ..text.layout import Text
from ..text.words import Word, WordTokens, check_words, find_tokens
from .batches import each
from .forward import vectors
from .limits import Cuts, Limits
from .output_arrays import WINDOW, Array, width_of
from .progress import progress


def word_vectors(
    backbone: Backbone,
    method: Method,
    texts: Sequence[Text],
    words: Sequence[Sequence[Word]],
    limits: Limits,
    post: Sequence[Post] = (),
) -> list[Array]:
    """Vectors of the words of each text, `WINDOW` texts at a time.

    Args:
        backbone: the model.
        method: the method.
        texts: texts that `check_texts` accepted.
        words: the words of each text.
        limits: limits on texts and batches.
        post: post-processing steps, applied to every vector.

    Returns:
        For each text (words, D').

    Raises:
        WordNotFound: a word is not in its text (checked before the model runs), or was cut off.
    """
    check_ids(texts, backbone.vocabulary_size)
    check_words(words, texts)
    weigh, tokenizer = method.weigh.for_words(), backbone.tokenizer
    copy = method.layout.total_copies if weigh.copy in ("last", "tail") else 1
    empty = np.zeros((0, width_of(backbone, method, post)), np.float32)
    rows: list[Array] = [empty] * len(texts)
    cuts, budget = Cuts(), limits.budget(backbone.device)
    with progress(len(texts), limits) as bar:
        for first in range(0, len(texts), WINDOW):
            window, here = texts[first : first + WINDOW], words[first : first + WINDOW]
            named = [[first + i] for i in range(len(window))]
            writings = method.layout.write(window, tokenizer, limits.max_length, offsets=True)
            check_written(writings, tokenizer, backbone.vocabulary_size, named)
            tokens = find_tokens(here, window, writings, copy, first)
            cuts.note(writings, limits, named)

            def run(batch: Batch, indices: list[int], tokens: WordTokens = tokens) -> list[Array]:
                raw = vectors(backbone, [method], batch, [tokens[i] for i in indices])[0]
                done = [after(vector[: len(tokens[i])], post) for i, vector in zip(indices, raw, strict=True)]
                return [vector.cpu().numpy() for vector in done]

            wanted = [i for i, asked in enumerate(here) if asked]
            bar(len(window) - len(wanted))
            for indices, outputs in each(writings, run, budget, backbone.device, wanted):
                for i, vector in zip(indices, outputs, strict=True):
                    rows[first + i] = vector
                bar(len(indices))
    cuts.warn(limits)
    return rows
