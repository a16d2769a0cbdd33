"""The score of Ditto with each head of a model, in one forward per text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..encode.limits import Limits
from ..encoder import Encoder
from ..errors import InputError
from ..methods import ditto
from ..tasks.pairs import ScoredPairs
from ..tasks.scores import spearmans
from ..tasks.task import as_read
from ..text.layout import Layout
from .head_correlation import fit_tfidf, inverse_frequencies, write_texts
from .recipes import EveryHead, Family
from .search import Search
from .tuning import with_default_prompt


def head_scores(
    encoder: Encoder,
    pairs: ScoredPairs,
    states: str = "first_last",
    limits: Limits | None = None,
    on_progress: Callable[[int], object] = lambda _: None,
) -> NDArray[np.floating[Any]]:
    """Spearman's correlation of Ditto's cosines with the scores of pairs, for each head (L, H).

    Source: Ditto, section 3 and appendix A.2: the head is chosen by this score on STS-B's development pairs.

    Args:
        encoder: an encoder of the model; its method is not used.
        pairs: the pairs.
        states: the states that the diagonals weigh.
        limits: batch size and maximum length.
        on_progress: called with the number of texts that were just finished.

    Raises:
        AttentionNotSeen: the model's attention weights cannot be read.
        MethodError: the model does not have these states.
        InputError: all pairs have one score.
    """
    backbone, limits = encoder.backbone, limits or Limits(encoder.max_length)
    replace(encoder, method=ditto((0, 0), states))  # refuses a model that Ditto cannot read
    if np.ptp(pairs.gold) == 0:
        raise InputError(f"all {len(pairs.gold)} pairs have the score {pairs.gold[0]:g}: no ranking can follow it")
    facts = backbone.facts
    heads = tuple(partial(ditto, (layer, head)) for layer in range(facts.layers) for head in range(facts.heads))
    family = Family((EveryHead("sum", "all", True),), heads, (states,))
    texts = [as_read(text) for text in (*pairs.left, *pairs.right)]
    writings = write_texts(with_default_prompt(encoder, Layout()), texts, backbone, limits)
    inverse = inverse_frequencies(fit_tfidf(backbone, backbone.tokenizer.ids(texts)))
    every = np.arange(len(pairs.gold))
    found = Search(backbone, [family], writings, pairs.gold, every, (), inverse, limits, on_progress).run()
    return spearmans(found.cosines[::2], pairs.gold).reshape(facts.layers, facts.heads)  # each raw, then centred
