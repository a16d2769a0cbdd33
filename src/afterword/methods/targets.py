"""Target rows: which tokens a vector stands for."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..shapes import Rows
from ..text.batch import Group


def word_targets(group: Group, words: Sequence[Sequence[Sequence[int]]], copy: int, dtype: torch.dtype) -> Rows:
    """Target rows of words (G, R, n): each the mean of its tokens, in one copy.

    Args:
        group: segments of one length.
        words: per text, per word, its tokens counted in the copy.
        copy: which copy, from 1.
        dtype: of the rows.

    Returns:
        R is the most words that any text of the batch has; what is beyond a text's own stays 0. In a chunked
        text a word's tokens may lie in several segments: its rows add up over them.
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
