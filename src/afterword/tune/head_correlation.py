"""Choose Ditto's head without labels: the head whose diagonal correlates best with the tokens' TF-IDF weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from ..backbone.backbone import Backbone
from ..encode.limits import Limits, Truncation, each
from ..errors import InputError
from ..methods import ditto, tfidf
from ..methods.frequency import ByToken, tf_idf
from ..methods.weights import Weighting
from ..text.batch import Batch
from ..text.layout import Layout
from ..text.segments import TokenizedText
from .reading import Reading, read
from .recipes import EveryHead, Family


class HeadCorrelation:
    """Pearson's correlation of each head's diagonal with the tokens' TF-IDF weights, averaged over texts.

    Ditto chooses its head on labelled pairs and names other ways as future work (Limitations). Its Table 4 shows
    that the diagonals of good heads correlate with TF-IDF. Texts in which either is constant are left out.

    Args:
        inverse: inverse document frequencies of the tokens (V,).
        heads: number of heads in all layers (L H).
    """

    def __init__(self, inverse: Tensor, heads: int) -> None:
        self.inverse = inverse
        self.total = torch.zeros(heads, dtype=torch.float64)
        self.texts = torch.zeros(heads, dtype=torch.float64)

    def add(self, reading: Reading) -> None:
        """Add a batch; its rows of weights are the heads' diagonals."""
        for group, rows in zip(reading.batch.groups, reading.rows, strict=True):
            inside = group.copy == 1
            weights = tf_idf(group.tokens, self.inverse.to(group.tokens.device), inside).double()
            by_text = correlations(rows.double(), weights[:, None], inside[:, None])
            self.total += by_text.nan_to_num(0.0).sum(0).cpu()
            self.texts += by_text.isfinite().sum(0).cpu()

    def result(self) -> Tensor:
        """The mean of each head (L H,); NaN if the correlation is undefined on every text."""
        return self.total / torch.where(self.texts > 0, self.texts, torch.nan)


def correlations(a: Tensor, b: Tensor, inside: Tensor) -> Tensor:
    """Pearson's correlation along the last axis, over the tokens marked `inside`; NaN if either side is constant.

    >>> x, y, all_ = torch.tensor([1.0, 2, 3, 9]), torch.tensor([2.0, 4, 6, 0]), torch.tensor([True, True, True, False])
    >>> correlations(x, y, all_).item()
    1.0
    """
    n = inside.sum(-1, keepdim=True)
    a = (a - (a * inside).sum(-1, keepdim=True) / n) * inside
    b = (b - (b * inside).sum(-1, keepdim=True) / n) * inside
    lengths = a.norm(dim=-1) * b.norm(dim=-1)
    tiny = 1e-9 * torch.ones_like(lengths)
    return torch.where(lengths > tiny, (a * b).sum(-1) / lengths, torch.nan)


@torch.no_grad()
def correlate_heads(
    backbone: Backbone,
    texts: Sequence[str],
    limits: Limits,
    layout: Layout,
    on_progress: Callable[[int], object] = lambda _: None,
) -> Tensor:
    """Correlation of each head's diagonal with TF-IDF on texts without labels (L, H), in one forward per text.

    Args:
        backbone: the model.
        texts: some hundreds; document frequencies are counted on them.
        limits: batch size and maximum length.
        layout: the input format.
        on_progress: called with the number of texts that were just finished.

    Raises:
        InputError: there are too few texts, or one has no token.
        AttentionNotSeen: the model's attention weights cannot be read.
    """
    facts = backbone.facts
    backbone.require(True, None)
    if len(texts) < 2:
        raise InputError(f"{len(texts)} texts have no tf-idf: give at least 2, some hundreds if you can")
    writings = write_texts(layout, texts, backbone, limits)
    heads = partial(ditto, (0, 0))
    family = Family((EveryHead("sum", "all", True),), (heads,), ("last",))
    correlation = HeadCorrelation(
        inverse_frequencies(fit_tfidf(backbone, backbone.tokenizer.ids(texts))), facts.layers * facts.heads
    )

    def run(batch: Batch, _: list[int]) -> Reading:
        return read(backbone, [family], batch)[0]

    for indices, reading in each(writings, run, limits.budget(backbone.device), backbone.device):
        correlation.add(reading)
        on_progress(len(indices))
    return correlation.result().view(facts.layers, facts.heads)


def write_texts(layout: Layout, texts: Sequence[str], backbone: Backbone, limits: Limits) -> list[TokenizedText]:
    """Write and tokenize texts; one warning says how many were truncated.

    Raises:
        InputError: a text has no token.
    """
    writings = layout.write(texts, backbone.tokenizer, limits.max_length)
    if empty := [t for w, t in zip(writings, texts, strict=True) if not w.total]:
        raise InputError(f"the text {empty[0]!r:.60} holds no token that the model knows: leave it out")
    cuts = Truncation()
    cuts.note(writings, limits)
    cuts.warn(limits)
    return writings


def fit_tfidf(backbone: Backbone, ids: Sequence[Sequence[int]]) -> Weighting:
    """TF-IDF with the document frequencies of texts given as token ids."""
    return tfidf().weigh.fit(ids, backbone.tokenizer, backbone.vocabulary_size)


def inverse_frequencies(weigh: Weighting) -> Tensor:
    """The inverse document frequencies of a fitted TF-IDF (V,)."""
    assert isinstance(weigh, ByToken) and weigh.table is not None
    return weigh.table.values
