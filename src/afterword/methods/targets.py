"""Target rows of words: which tokens a word's vector stands for."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..shapes import Rows
from ..text.batch import Group


def word_targets(group: Group, words: Sequence[Sequence[Sequence[int]]], copy: int, dtype: torch.dtype) -> Rows:
    """Target rows of words (G, R, n): each the mean of the word's tokens, in one copy of the text.

    Args:
        group: segments of one length.
        words: for each text, for each of its words, the positions of its tokens in the copy.
        copy: number of the copy, from 1.
        dtype: type of the rows.

    Returns:
        Target rows, where R is the largest number of words of a text in the batch; further rows of a text are 0. In a
        text that is split into chunks, a word's tokens may lie in several segments, whose rows add up.
    """
    most = max((len(w) for w in words), default=0)
    rows = torch.zeros(group.count, most, group.length, dtype=dtype)
    texts, spans, firsts = group.text.tolist(), group.spans[:, copy - 1].tolist(), group.first.tolist()
    for g, t in enumerate(texts):
        if t < 0:
            continue
        start, end = spans[g]
        for r, tokens in enumerate(words[t]):
            for i in tokens:
                at = start + i - firsts[g]
                if start <= at < end:
                    rows[g, r, at] = 1 / len(tokens)
    return rows.to(group.tokens.device)
