"""Choosing Ditto's head without labels: the head whose diagonal follows the tf-idf weights of the tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from ..backbone.backbone import Backbone
from ..encode.batches import each
from ..encode.limits import Cuts, Limits
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
    """The mean, over texts, of Pearson's correlation of each head's diagonal with the tokens' tf-idf weights.

    Ditto chooses its head on labelled pairs and names other ways as future work (Limitations); its Table 4 shows
    that heads that serve well follow tf-idf. Texts in which either is constant are left out.

    Args:
        inverse: inverse document frequencies of the tokens (V,).
        heads: L H.
    """

    def __init__(self, inverse: Tensor, heads: int) -> None:
        self.inverse = inverse
        self.total = torch.zeros(heads, dtype=torch.float64)
        self.texts = torch.zeros(heads, dtype=torch.float64)

    def add(self, reading: Reading) -> None:
        """See a batch; its rows of weights are diagonals."""
        for group, rows in zip(reading.batch.groups, reading.rows, strict=True):
            inside = group.copy == 1
            weights = tf_idf(group.tokens, self.inverse.to(group.tokens.device), inside).double()
            found = correlations(rows.double(), weights[:, None], inside[:, None])
            defined = found.isfinite()
            self.total += found.nan_to_num(0.0).sum(0).cpu()
            self.texts += defined.sum(0).cpu()

    def result(self) -> Tensor:
        """The mean of each head (L H,); NaN where no text told."""
        return self.total / torch.where(self.texts > 0, self.texts, torch.nan)


def correlations(a: Tensor, b: Tensor, inside: Tensor) -> Tensor:
    """Pearson's correlation along the last axis, of the tokens that are inside only; NaN where one is constant.

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
    told: Callable[[int], object] = lambda _: None,
) -> Tensor:
    """How each head's diagonal follows tf-idf on texts without labels (L, H), in one forward.

    Args:
        backbone: the model.
        texts: some hundreds; inverse frequencies are theirs.
        limits: how much at a time.
        layout: how they are written.
        told: hears how many more texts are done.

    Raises:
        InputError: too few texts, or one of no token.
        AttentionNotSeen: the model does not show its attention.
    """
    facts = backbone.facts
    backbone.require(True, None)
    if len(texts) < 2:
        raise InputError(f"{len(texts)} texts have no tf-idf: give at least 2, some hundreds if you can")
    writings = written(layout, texts, backbone, limits)
    heads = partial(ditto, (0, 0))
    family = Family((EveryHead("sum", "all", True),), (heads,), ("last",))
    found = HeadCorrelation(
        inverse_frequencies(fitted(backbone, backbone.tokenizer.ids(texts))), facts.layers * facts.heads
    )

    def run(batch: Batch, _: list[int]) -> Reading:
        return read(backbone, [family], batch)[0]

    for indices, reading in each(writings, run, limits.budget(backbone.device), backbone.device):
        found.add(reading)
        told(len(indices))
    return found.result().view(facts.layers, facts.heads)


def written(layout: Layout, texts: Sequence[str], backbone: Backbone, limits: Limits) -> list[TokenizedText]:
    """The texts as the model reads them; those that were cut are told of once.

    Raises:
        InputError: a text of no token.
    """
    writings = layout.write(texts, backbone.tokenizer, limits.max_length)
    if empty := [t for w, t in zip(writings, texts, strict=True) if not w.total]:
        raise InputError(f"the text {empty[0]!r:.60} holds no token that the model knows: leave it out")
    cuts = Cuts()
    cuts.note(writings, limits)
    cuts.warn(limits)
    return writings


def fitted(backbone: Backbone, ids: Sequence[Sequence[int]]) -> Weighting:
    """TF-IDF with the document frequencies of some texts, given as token ids."""
    return tfidf().weigh.fit(ids, backbone.tokenizer, backbone.vocabulary_size)


def inverse_frequencies(weigh: Weighting) -> Tensor:
    """What was fitted (V,)."""
    assert isinstance(weigh, ByToken) and weigh.table is not None
    return weigh.table.values
