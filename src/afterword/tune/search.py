"""Score all recipes of one layout in one pass over the pairs, keeping two cosines per pair and recipe.

The pass begins with a few hundred pairs, whose hidden states are kept in memory. They give each recipe's mean vector,
so that every later vector can be centred as soon as it is computed; and they show which recipes lead. Of these few
leaders all vectors are kept, so that whitening and the like can be fitted at the end. No text runs twice, unless the
states of the first pairs need too much memory.
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
from torch.nn.functional import normalize

from ..backbone.backbone import Backbone
from ..encode.limits import Budget, Limits
from ..encode.sentences import precision_of
from ..errors import AfterwordError, InputError
from ..methods import Method
from ..methods.states import States
from ..post import Affine, Centre, Dense, Moments
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
"""The pairs of one forward, and each family's reading of it."""
Step = tuple[str, Affine | Dense]
"""A post-processing step to try, with its spelling: one to fit, or one that is fitted to the model already."""
Position = tuple[int, int, int]
"""Indices of a recipe's family, row of weights and kind of states."""

BEGINNING = 256  # number of first pairs, which give means and leaders
HELD = 512 << 20  # bytes of their states that are kept; texts beyond that run a second time
LEADERS, KEPT = 8, 512 << 20  # maximum number of leaders, and bytes of their vectors


class Decomposed(Moments):
    """Moments to which nothing is added any more: the eigenvectors are computed once for all steps."""

    @cached_property
    def _directions(self) -> tuple[Tensor, Tensor]:
        return super().directions()

    def directions(self) -> tuple[Tensor, Tensor]:
        """Variances along the principal directions, and the directions."""
        return self._directions


@dataclass
class SearchResult:
    """The recipes of one pass, with their cosines.

    Attributes:
        recipes: the recipes (m).
        cosines: each recipe's cosines of the n pairs (m, n).
        fits: for each recipe, a function that returns its fitted post-processing steps.
        correlation: of each head's diagonal with TF-IDF (L H,); None if Ditto was not tried.
        notes: recipes that could not be tried, and why.
        leaders: the best recipes without post-processing: method, spelling, and vectors of the texts (2, n, D).
    """

    recipes: list[Recipe] = field(default_factory=list)
    cosines: Array = field(default_factory=lambda: np.empty((0, 0)))
    fits: list[Callable[[], tuple[Dense, ...]]] = field(default_factory=list)
    correlation: Array | None = None
    notes: list[str] = field(default_factory=list)
    leaders: list[tuple[Method, str, Tensor]] = field(default_factory=list)


@dataclass
class Search:
    """The pass over one layout.

    Args:
        backbone: the model.
        families: the methods to try, all with one sight.
        writings: the n left texts as the layout writes them, then the n right ones.
        gold: scores of the pairs (n,).
        ranking: indices of the pairs that rank recipes, in the order drawn; everything is fitted on them alone.
        posts: post-processing steps; those that are not fitted to the model are fitted to the leaders' vectors.
        inverse: inverse document frequencies of the tokens (V,).
        limits: batch size and maximum length.
        on_progress: called with the number of texts that were just finished.
    """

    backbone: Backbone
    families: Sequence[Family]
    writings: Sequence[TokenizedText]
    gold: Array
    ranking: Indices
    posts: Sequence[Step]
    inverse: Tensor
    limits: Limits
    on_progress: Callable[[int], object]

    def __post_init__(self) -> None:
        """Allocate the cosines, and choose the batch size."""
        self.pairs = len(self.gold)
        dtype = precision_of(self.backbone)
        device = self.backbone.device
        self.mixes = [mixture(f).to(device, dtype) for f in self.families]
        self.cosines = [torch.empty(self.pairs, len(f.rows), len(f.kinds), 2, dtype=dtype) for f in self.families]
        self.means: list[Tensor] = [torch.empty(0)] * len(self.families)
        self.correlation: HeadCorrelation | None = None
        at_most = self.limits.batch_size or 2 * self.pairs
        more = 3 * self.limits.tokens(device) // 2  # larger batches than usual: two texts of a pair differ in length
        self.budget = Budget(self.limits.batch_tokens or more, max(at_most // 2, 1))

    @torch.no_grad()
    def run(self) -> SearchResult:
        """Run all texts and score all recipes."""
        beginning = self.ranking[:BEGINNING]
        held = list(self._hold(beginning))
        self._centre(len(beginning))
        for pairs, readings in self._again(held):
            self._score(pairs, readings)
        leaders = self._leaders(beginning)
        kept = [torch.empty(2, self.pairs, self.means[f].shape[-1], dtype=self.cosines[f].dtype) for f, _, _ in leaders]
        for pairs, readings in self._again(held):
            self._keep(pairs, readings, leaders, kept)
        held.clear()
        for pairs, readings in self._stream(np.setdiff1d(np.arange(self.pairs), beginning)):
            self._score(pairs, readings)
            self._keep(pairs, readings, leaders, kept)
        return self._result(leaders, kept)

    def _stream(self, wanted: Indices) -> Iterator[Part]:
        """Run batches of whole pairs, sorted by their longer text, then by the shorter: few lengths per batch."""
        lengths = [sorted(self.writings[i + side].size for side in (0, self.pairs)) for i in range(self.pairs)]
        order = sorted(map(int, wanted), key=lambda i: lengths[i][::-1], reverse=True)
        for pairs, readings in self.budget.batches([sum(both) for both in lengths], self._read, order):
            self._correlate(readings)
            yield pairs, readings
            self.on_progress(2 * len(pairs))

    def _read(self, pairs: list[int]) -> list[Reading]:
        texts = [self.writings[i] for i in pairs] + [self.writings[self.pairs + i] for i in pairs]
        return read(self.backbone, self.families, lay(texts, self.backbone.device))

    def _correlate(self, readings: Sequence[Reading]) -> None:
        for family, reading in zip(self.families, readings, strict=True):
            if isinstance(family.weigh[0], EveryHead):
                self.correlation = self.correlation or HeadCorrelation(self.inverse, len(family.rows))
                self.correlation.add(reading)

    def _hold(self, beginning: Indices) -> Iterator[tuple[list[int], list[Reading] | None]]:
        """Run the first pairs, sum up their vectors, and keep the readings that fit into `HELD` bytes."""
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
        for reading, mean, mix, cosines in zip(readings, self.means, self.mixes, self.cosines, strict=True):
            mean = mean.to(mix.dtype)
            for chosen, vectors in reading.parts():
                cosines[pairs, chosen] = raw_and_centred(vectors, mean[chosen], mix).cpu()

    def _leaders(self, beginning: Indices) -> list[Position]:
        """The first recipe, then the best rows of weights, each with its best kind of states."""
        best: list[tuple[float, Position]] = []
        gold = self.gold[beginning]
        for f, cosines in enumerate(self.cosines):
            columns = cosines[beginning].flatten(1).T.contiguous().numpy()
            scores = np.nan_to_num(spearmans(columns, gold), nan=-2.0).reshape(*cosines.shape[1:]).max(-1)
            best += [(float(row.max()), (f, r, int(row.argmax()))) for r, row in enumerate(scores)]
        width, ordered = self.backbone.facts.width, sorted(best, key=lambda b: -b[0])
        size = 8 * width * self.pairs + 4 * width**2 * len(self.posts)
        count = max(1, min(LEADERS, KEPT // size))
        return list(dict.fromkeys([(0, 0, 0), *(position for _, position in ordered)]))[:count]

    def _keep(
        self, pairs: list[int], readings: Sequence[Reading], leaders: Sequence[Position], kept: list[Tensor]
    ) -> None:
        for f, (family, reading) in enumerate(zip(self.families, readings, strict=True)):
            own = [(m, r, family.kinds[c]) for m, (g, r, c) in enumerate(leaders) if g == f]
            if own:
                vectors = reading.vectors([r for _, r, _ in own])
                for i, (m, _, kind) in enumerate(own):
                    at = [family.layers.index(layer) for layer in States(kind).layers]
                    kept[m][:, pairs] = vectors[:, i, at].mean(1).unflatten(0, (2, -1)).cpu()

    def _result(self, leaders: Sequence[Position], kept: list[Tensor]) -> SearchResult:
        result, columns = SearchResult(), []
        for f, (family, cosines) in enumerate(zip(self.families, self.cosines, strict=True)):
            positions = [(f, r, c) for r in range(len(family.rows)) for c in range(len(family.kinds))]
            for position, (method, spec) in zip(positions, family.methods(), strict=True):
                result.recipes += [Recipe(method, "none", spec), Recipe(method, "centre", spec)]
                result.fits += [tuple, lambda position=position: (self._centring(position),)]  # type: ignore[misc]
            columns.append(cosines.flatten(1).T.contiguous().numpy())
        for (f, r, c), vectors in zip(leaders, kept, strict=True):
            method, spec = self.families[f].method(r, c)
            result.leaders.append((method, spec, vectors))
            columns += self._with_posts(method, spec, vectors, result)
        result.cosines = np.concatenate(columns)
        result.correlation = None if self.correlation is None else self.correlation.result().numpy()
        return result

    def _centring(self, position: Position) -> Dense:
        f, r, c = position
        at = [self.families[f].layers.index(layer) for layer in States(self.families[f].kinds[c]).layers]
        return Centre().of(Moments(1, self.means[f][r, at].mean(0).cpu()))

    def _with_posts(self, method: Method, spec: str, vectors: Tensor, result: SearchResult) -> Iterator[Array]:
        """A leader's cosines after each post-processing step, fitted on the vectors of the pairs that rank."""
        try:
            ranking = vectors[:, self.ranking].flatten(0, 1)
            moments, unit = Decomposed().add(ranking), Moments().add(normalize(ranking, dim=-1))
        except InputError as e:
            result.notes.append(f"{spec}: {e}")
            return
        for name, post in self.posts:
            try:
                dense = post if isinstance(post, Dense) else post.of(unit if post.unit else moments)
                left, right = dense(vectors.flatten(0, 1)).chunk(2)
            except AfterwordError as e:
                result.notes.append(f"{spec}: {e}")
                continue
            result.recipes.append(Recipe(method, name, spec))
            result.fits.append(lambda dense=dense: (dense,))  # type: ignore[misc]
            yield exact(left.numpy(), right.numpy()).astype(self.cosines[0].numpy().dtype)[None]
