"""EmbedFilter: keep some singular directions of the model's language-modelling head. It needs no texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ..backbone.backbone import Backbone
from ..backbone.loading import load_head
from ..errors import MethodError
from ..spelling import check_fields
from .components import eigen
from .steps import BLOCK, Dense, Post


@dataclass(frozen=True)
class EmbedFilter(Post):
    """Keep the components of a vector along some right singular vectors of the language-modelling head: V_k x.

    An `Encoder` replaces it with a layer made from its model. A tied head is the embedding table.

    Source: Wu et al. 2026 (arXiv 2606.07502); as their code (CentreChen/EmbFilter@c3958e3), up to signs.

    Args:
        spectrum: which directions are dropped: those of the largest and the smallest singular values, in equal
            numbers ("edge"), of the smallest ("tail"), or of the largest ("head").
        keep: how many are kept: a fraction of all, such as 0.25, or a whole number; None = half.
        head: a model, by its name or folder, whose head is taken; None = the encoder's.
    """

    spectrum: Literal["edge", "tail", "head"] = "edge"
    keep: float | None = None
    head: str | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        count = isinstance(self.keep, int)
        if self.keep is not None and not (self.keep >= 1 if count else 0 < self.keep <= 1):
            raise MethodError(f"embed_filter: keep={self.keep!r}: pass a fraction such as 0.5, or a whole number")

    def __call__(self, vectors: Tensor) -> Tensor:
        """Raise MethodError: only an `Encoder` can make the layer."""
        raise MethodError(f"{self} reads the head of a language model: pass the step to an Encoder: post=(step,)")

    def of(self, backbone: Backbone) -> Dense:
        """The layer of a model (k, D).

        Raises:
            ModelError: the model has no head.
            MethodError: ``keep`` is more than the number of directions.
        """
        table = load_head(backbone, self.head).weight
        assert isinstance(table, Tensor)
        table = table.detach() if table.is_cuda else table.detach().cpu()
        gram = table.new_zeros(table.shape[1], table.shape[1], dtype=torch.float64)
        for part in table.split(BLOCK):
            gram += part.double().T @ part.double()
        _, rows = eigen(gram)
        width = len(rows)
        share = 0.5 if self.keep is None else self.keep
        kept = share if isinstance(share, int) else max(1, int(width * share))
        if kept > width:
            raise MethodError(f"embed_filter: keep={kept}: the head of {backbone.facts.kind} has {width} directions")
        first = {"edge": (width - kept) // 2, "tail": 0, "head": width - kept}[self.spectrum]
        return Dense(rows[first : first + kept].float().cpu().contiguous())


def resolved(steps: Sequence[Post], backbone: Backbone) -> tuple[Post, ...]:
    """Replace each `EmbedFilter` with the layer of a model; see `EmbedFilter.of` for errors."""
    return tuple(step.of(backbone) if isinstance(step, EmbedFilter) else step for step in steps)
