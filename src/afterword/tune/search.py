"""One pass over the pairs of a layout: two numbers per pair and recipe, and no vectors but those of a few leaders.

The pass begins with a few hundred pairs, whose states are held: they give each recipe's mean, so that from then on
the mean can be taken off every vector as it is made; and they name the leaders, of which all vectors are kept, so
that whitening and the like can be fitted in the end. No text runs twice, unless those states take too much room.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..backbone.backbone import Backbone
from ..encode.batches import Budget
from ..encode.forward import precision_of
from ..encode.limits import Limits
from ..errors import InputError
from ..methods import Method
from ..methods.states import States
from ..post import Affine, Centre, Dense, Moments, spelled
from ..tasks.scores import cosines as exact
from ..tasks.scores import spearmans
from ..text.batch import lay
from ..text.segments import TokenizedText
from .cosines import mixture, raw_and_centred
from .head_correlation import HeadCorrelation
from .reading import Reading, read
from .recipes import EveryHead, Family, Recipe

Array = NDArray[np.floating[Any]]
Indices = NDArray[np.intp]
Part = tuple[list[int], list[Reading]]
"""Pairs of one forward, and what each family read of them."""
Place = tuple[int, int, int]
"""A recipe's family, row of weights and kind of states."""

BEGINNING = 256  # pairs that give means and leaders
HELD = 512 << 20  # bytes of their states that are held; what is more is run a second time
LEADERS, KEPT = 8, 512 << 20  # whose vectors are kept, and their bytes


class Decomposed(Moments):
    """Moments that are complete: their directions are worked out once for all steps."""

    @cached_property
    def _directions(self) -> tuple[Tensor, Tensor]:
        return super().principal()

    def principal(self) -> tuple[Tensor, Tensor]:
        """Variances and directions."""
        return self._directions


@dataclass
class Tried:
    """What a pass found.

    Attributes:
        recipes: m of them.
        cosines: of the n pairs (m, n).
        fits: per recipe, what makes the fitted steps behind its method.
        correlation: with tf-idf, per head (L H,), where heads were read.
        notes: what could not be tried, and why.
    """

    recipes: list[Recipe] = field(default_factory=list)
    cosines: Array = field(default_factory=lambda: np.empty((0, 0)))
    fits: list[Callable[[], tuple[Dense, ...]]] = field(default_factory=list)
    correlation: Array | None = None
    notes: list[str] = field(default_factory=list)


@dataclass
class Search:
    """The pass over one layout.

    Args:
        backbone: the model.
        families: what is tried, of one sight.
        writings: of the n left texts, then of the n right ones.
        gold: scores (n,).
        ranking: the pairs that may be looked at to rank, in the order drawn; everything is fitted on them.
        posts: fitted to the leaders' vectors.
        inverse: inverse frequencies of tokens (V,).
        limits: how much at a time.
        told: hears how many more texts are done.
    """

    backbone: Backbone
    families: Sequence[Family]
    writings: Sequence[TokenizedText]
    gold: Array
    ranking: Indices
    posts: Sequence[Affine]
    inverse: Tensor
    limits: Limits
    told: Callable[[int], object]

    def __post_init__(self) -> None:
        """Make room."""
        self.pairs = len(self.gold)
        dtype = precision_of(self.backbone)
        device = self.backbone.device
        self.mixes = [mixture(f).to(device, dtype) for f in self.families]
        self.found = [torch.empty(self.pairs, len(f.rows), len(f.kinds), 2, dtype=dtype) for f in self.families]
        self.means: list[Tensor] = [torch.empty(0)] * len(self.families)
        self.correlation: HeadCorrelation | None = None
        at_most = self.limits.batch_size or 2 * self.pairs
        more = 3 * self.limits.tokens(device) // 2  # than a plain pass takes: there are more lengths
        self.budget = Budget(self.limits.batch_tokens or more, max(at_most // 2, 1))

    @torch.no_grad()
    def run(self) -> Tried:
        """Every recipe's cosines."""
        beginning = self.ranking[:BEGINNING]
        held = list(self._hold(beginning))
        self._centre(len(beginning))
        for pairs, readings in self._again(held):
            self._score(pairs, readings)
        leaders = self._leaders(beginning)
        kept = torch.empty(len(leaders), 2, self.pairs, self.backbone.facts.width, dtype=self.found[0].dtype)
        for pairs, readings in self._again(held):
            self._keep(pairs, readings, leaders, kept)
        held.clear()
        for pairs, readings in self._stream(np.setdiff1d(np.arange(self.pairs), beginning)):
            self._score(pairs, readings)
            self._keep(pairs, readings, leaders, kept)
        return self._tried(leaders, kept)

    def _stream(self, wanted: Indices) -> Iterator[Part]:
        """Batches of whole pairs, each run once: by their longer text, then their shorter, so that lengths are few."""
        lengths = [sorted(self.writings[i + side].size for side in (0, self.pairs)) for i in range(self.pairs)]
        order = sorted(map(int, wanted), key=lambda i: lengths[i][::-1], reverse=True)
        for pairs, readings in self.budget.batches([sum(both) for both in lengths], self._read, order):
            self._correlate(readings)
            yield pairs, readings
            self.told(2 * len(pairs))

    def _read(self, pairs: list[int]) -> list[Reading]:
        texts = [self.writings[i] for i in pairs] + [self.writings[self.pairs + i] for i in pairs]
        return read(self.backbone, self.families, lay(texts, self.backbone.device))

    def _correlate(self, readings: Sequence[Reading]) -> None:
        for family, reading in zip(self.families, readings, strict=True):
            if isinstance(family.weigh[0], EveryHead):
                self.correlation = self.correlation or HeadCorrelation(self.inverse, len(family.rows))
                self.correlation.add(reading)

    def _hold(self, beginning: Indices) -> Iterator[tuple[list[int], list[Reading] | None]]:
        """The first batches, with their states as far as there is room; their vectors are summed up."""
        size = 0
        for pairs, readings in self._stream(beginning):
            for f, reading in enumerate(readings):
                total = reading.total()
                self.means[f] = self.means[f] + total if len(self.means[f]) else total
            size += sum(reading.nbytes for reading in readings)
            yield pairs, readings if size <= HELD else None

    def _again(self, held: Sequence[tuple[list[int], list[Reading] | None]]) -> Iterator[Part]:
        return ((pairs, readings or self._read(pairs)) for pairs, readings in held)

    def _centre(self, pairs: int) -> None:
        self.means = [total / (2 * pairs) for total in self.means]

    def _score(self, pairs: list[int], readings: Sequence[Reading]) -> None:
        for reading, mean, mix, found in zip(readings, self.means, self.mixes, self.found, strict=True):
            mean = mean.to(mix.dtype)
            for chosen, vectors in reading.parts():
                found[pairs, chosen] = raw_and_centred(vectors, mean[chosen], mix).cpu()

    def _leaders(self, beginning: Indices) -> list[Place]:
        """The best kind of states of each row of weights; of these the best, and the very first."""
        best: list[tuple[float, Place]] = []
        gold = self.gold[beginning]
        for f, found in enumerate(self.found):
            cosines = found[beginning].flatten(1).T.contiguous().numpy()
            scores = np.nan_to_num(spearmans(cosines, gold), nan=-2.0).reshape(*found.shape[1:]).max(-1)
            best += [(float(row.max()), (f, r, int(row.argmax()))) for r, row in enumerate(scores)]
        width, places = self.backbone.facts.width, sorted(best, key=lambda b: -b[0])
        size = 8 * width * self.pairs + 4 * width**2 * len(self.posts)
        count = max(1, min(LEADERS, KEPT // size)) if self.posts else 0
        return list(dict.fromkeys([(0, 0, 0), *(place for _, place in places)]))[:count]

    def _keep(self, pairs: list[int], readings: Sequence[Reading], leaders: Sequence[Place], kept: Tensor) -> None:
        for f, (family, reading) in enumerate(zip(self.families, readings, strict=True)):
            mine = [(m, r, family.kinds[c]) for m, (g, r, c) in enumerate(leaders) if g == f]
            if mine:
                vectors = reading.vectors([r for _, r, _ in mine])
                for i, (m, _, kind) in enumerate(mine):
                    at = [family.layers.index(layer) for layer in States(kind).layers]
                    kept[m][:, pairs] = vectors[:, i, at].mean(1).unflatten(0, (2, -1)).cpu()

    def _tried(self, leaders: Sequence[Place], kept: Tensor) -> Tried:
        tried, columns = Tried(), []
        for f, (family, found) in enumerate(zip(self.families, self.found, strict=True)):
            places = [(f, r, c) for r in range(len(family.rows)) for c in range(len(family.kinds))]
            for place, (method, spec) in zip(places, family.methods(), strict=True):
                tried.recipes += [Recipe(method, "none", spec), Recipe(method, "centre", spec)]
                tried.fits += [tuple, lambda place=place: (self._centring(place),)]  # type: ignore[misc]
            columns.append(found.flatten(1).T.contiguous().numpy())
        for (f, r, c), vectors in zip(leaders, kept, strict=True):
            columns += self._finished(*self.families[f].method(r, c), vectors, tried)
        tried.cosines = np.concatenate(columns)
        tried.correlation = None if self.correlation is None else self.correlation.result().numpy()
        return tried

    def _centring(self, place: Place) -> Dense:
        f, r, c = place
        at = [self.families[f].layers.index(layer) for layer in States(self.families[f].kinds[c]).layers]
        return Centre().of(Moments(1, self.means[f][r, at].mean(0).cpu()))

    def _finished(self, method: Method, spec: str, vectors: Tensor, tried: Tried) -> Iterator[Array]:
        """A leader's cosines behind each step, fitted on the vectors of the pairs that rank."""
        try:
            moments = Decomposed().add(vectors[:, self.ranking].flatten(0, 1))
        except InputError as e:
            tried.notes.append(f"{spec}: {e}")
            return
        for post in self.posts:
            try:
                dense = post.of(moments)
            except InputError as e:
                tried.notes.append(f"{spec}: {e}")
                continue
            left, right = dense(vectors.flatten(0, 1)).chunk(2)
            tried.recipes.append(Recipe(method, spelled([post]), spec))
            tried.fits.append(lambda dense=dense: (dense,))  # type: ignore[misc]
            yield exact(left.numpy(), right.numpy()).astype(self.found[0].numpy().dtype)[None]
