"""Vectors of words in context."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ..backbone.backbone import Backbone
from ..methods import AnyMethod, Method
from ..post import Post, after
from ..text.batch import Batch
from ..text.inputs import check_ids, check_written
from ..text.layout import Text
from ..text.segments import TokenizedText
from ..text.words import Word, WordTokens, check_words, find_tokens
from .limits import Budget, Limits, Losses, each, progress
from .sentences import WINDOW, Array, joined_rows, own_steps, vectors, width_of


def word_vectors(
    backbone: Backbone,
    method: AnyMethod,
    texts: Sequence[Text],
    words: Sequence[Sequence[Word]],
    limits: Limits,
    post: Sequence[Post] = (),
) -> list[Array]:
    """Vectors of the words of each text, `WINDOW` texts at a time.

    Args:
        backbone: the model.
        method: the method; of an ensemble, each word's vectors by its methods are joined.
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
    tokenizer, vocabulary, own = backbone.tokenizer, backbone.vocabulary_size, own_steps(method, post)
    rows: list[Array] = [np.zeros((0, width_of(backbone, method, post)), np.float32)] * len(texts)
    cuts, budget = [Losses(unknown_id=tokenizer.unknown_id) for _ in method.members], limits.budget(backbone.device)
    with progress(len(texts), limits, len(texts) * len(cuts)) as bar:
        for first in range(0, len(texts), WINDOW):
            window, here = texts[first : first + WINDOW], words[first : first + WINDOW]
            named, parts = [[first + i] for i in range(len(window))], []
            for member, cut in zip(method.members, cuts, strict=True):
                writings = member.layout.write(window, tokenizer, limits.max_length, offsets=True)
                check_written(writings, tokenizer, vocabulary, named)
                tokens = find_tokens(here, window, writings, copy_of(member), first)
                cut.note(writings, limits, named)
                bar(sum(not asked for asked in here))
                parts.append(dict[int, Array]())
                for i, vector in vectors_of_tokens(backbone, member, writings, tokens, budget, own):
                    parts[-1][i] = vector
                    bar(1)
            for i in parts[0]:
                rows[first + i] = joined_rows(method, [part[i] for part in parts], post)
    max(cuts, key=lambda c: len(c.lost)).warn(limits)
    return rows


def copy_of(method: Method) -> int:
    """The number of the copy of the text whose tokens a word's vector stands for, from 1."""
    return method.layout.total_copies if method.weigh.for_words().copy in ("last", "tail") else 1


def vectors_of_tokens(
    backbone: Backbone,
    method: Method,
    writings: Sequence[TokenizedText],
    tokens: WordTokens,
    budget: Budget,
    post: Sequence[Post],
) -> Iterator[tuple[int, Array]]:
    """Vectors (R, D') of the R words of each tokenized text that has any, with the number of the text.

    The arguments are those of `word_vectors`; ``tokens`` are the tokens of each word.
    """

    def run(batch: Batch, indices: list[int]) -> list[Array]:
        raw = vectors(backbone, [method], batch, [tokens[i] for i in indices])[0]
        done = [after(vector[: len(tokens[i])], post) for i, vector in zip(indices, raw, strict=True)]
        return [vector.cpu().numpy() for vector in done]

    wanted = [i for i, asked in enumerate(tokens) if asked]
    for indices, outputs in each(writings, run, budget, backbone.device, wanted):
        yield from zip(indices, outputs, strict=True)
