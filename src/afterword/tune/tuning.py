"""Tune: find the best recipe for a model on scored pairs, with intervals that say how far to trust it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..backbone.backbone import Backbone
from ..encode.limits import Limits
from ..encode.options import choose_prompt
from ..encode.sentences import shares
from ..encoder import Encoder
from ..errors import AfterwordError, InputError
from ..methods import sif, tfidf
from ..post import EmbedFilter, Normalise, spelled
from ..tasks.pairs import ScoredPairs
from ..tasks.scores import cosines, quantize, spearman
from ..tasks.task import as_read, embed
from ..text.inputs import with_prompt
from ..text.layout import Layout
from ..text.segments import TokenizedText
from .choice import Choice, choose, halves
from .ensembles import Leader, best_of, named_ensembles, of_two
from .head_correlation import fit_tfidf, inverse_frequencies, write_texts
from .recipes import Family, Grid, Recipe, families
from .search import Search, SearchResult, Step

FITTED = (partial(tfidf), partial(sif))
"""Methods with token weights that are fitted to the texts of the pairs that rank."""

Array = NDArray[np.floating[Any]]


@dataclass
class Tuned:
    """The result of tuning.

    Attributes:
        encoder: the default, as it was given.
        recipes: all recipes that were tried (m).
        cosines: each recipe's cosines of the n pairs (m, n).
        gold: scores of the pairs (n,).
        split: indices of the pairs that rank, and of those that confirm.
        choice: the chosen recipe, and the numbers that led to it.
        correlation: of each head's diagonal with TF-IDF (L, H); None if Ditto was not tried.
        notes: recipes that could not be tried, and why.
        seed: random seed of the split and of the bootstrap.
    """

    encoder: Encoder
    recipes: list[Recipe]
    cosines: Array
    gold: Array
    split: tuple[NDArray[np.intp], NDArray[np.intp]]
    choice: Choice
    correlation: Array | None
    notes: list[str]
    seed: int = 0
    _fits: list[Callable[[], tuple[Any, ...]]] = field(default_factory=list, repr=False)

    def encoder_of(self, index: int) -> Encoder:
        """The encoder of a recipe, with its post-processing steps fitted."""
        if index == self.choice.default:
            return self.encoder
        normal = tuple(step for step in self.encoder.post if isinstance(step, Normalise))
        return replace(self.encoder, method=self.recipes[index].method, post=(*self._fits[index](), *normal))

    @property
    def chosen(self) -> Encoder:
        """The encoder of the chosen recipe."""
        return self.encoder_of(self.choice.chosen)


def tune(
    encoder: Encoder,
    pairs: ScoredPairs,
    grid: Grid | None = None,
    *,
    seed: int = 0,
    limits: Limits | None = None,
    on_progress: Callable[[int], object] = lambda _: None,
) -> Tuned:
    """Find the best recipe for a model on scored pairs, with one forward per text and layout.

    Args:
        encoder: the model, with the recipe to beat.
        pairs: at least 40, better some hundreds.
        grid: what to try; None = the default `Grid`.
        seed: random seed of the split and of the bootstrap.
        limits: batch size and maximum length; longer texts are truncated, with a warning.
        on_progress: called with the number of texts that were just finished; every layout runs both texts of a pair.

    Raises:
        InputError: there are too few pairs, or no recipe has a defined correlation.
        MethodError: a template or a number of the grid is invalid for its method.

    >>> from afterword.tasks import pairs
    >>> encoder = Encoder.load("afterword-mini", "classical")
    >>> left, gold = [f"{n} cats" for n in range(40)], np.arange(40.0)
    >>> tune(encoder, pairs.ScoredPairs(tuple(left), tuple(left[::-1]), gold, ()), seed=1).choice.improved
    False
    """
    grid, limits = grid or Grid(), limits or Limits(encoder.max_length)
    split = halves(len(pairs.gold), seed)
    if np.ptp(pairs.gold) == 0:
        raise InputError(f"all {len(pairs.gold)} pairs have the score {pairs.gold[0]:g}: no ranking can follow it")
    texts = [as_read(text) for text in (*pairs.left, *pairs.right)]
    backbone, ids = encoder.backbone, encoder.backbone.tokenizer.ids(texts)
    inverse = inverse_frequencies(fit_tfidf(backbone, ids))
    ranking = [ids[i] for i in (*split[0], *(split[0] + len(pairs.gold)))]
    fitted = {make: make().weigh.fit(ranking, backbone.tokenizer, backbone.vocabulary_size) for make in FITTED}
    posts, notes = _steps(grid, backbone)
    passes: list[SearchResult] = []
    best: list[Leader] = []
    for some, writings in _layouts(encoder, families(grid, backbone, fitted), texts, limits, notes):
        search = Search(backbone, some, writings, pairs.gold, split[0], posts, inverse, limits, on_progress)
        passes.append(search.run())
        best = best_of([*best, *passes[-1].leaders], pairs.gold, split[0])
        passes[-1].leaders.clear()  # their vectors take memory
    passes += [of_two(best, split[0])] if grid.ensembles else []
    passes += [named_ensembles(encoder, pairs, split[0])] if grid.published else []
    recipes = [r for p in passes for r in p.recipes]
    columns = [p.cosines for p in passes if len(p.recipes)]
    default = _default(encoder, recipes)
    if default is None:
        default = len(recipes)
        recipes.append(Recipe(encoder.method, "its own"))
        columns.append(_cosines(encoder, pairs)[None].astype(columns[0].dtype))
    rounded = quantize(np.concatenate(columns))
    choice = choose(recipes, rounded, pairs.gold, split, default, seed)
    return Tuned(
        encoder, recipes, rounded, pairs.gold, split, choice, _heads(encoder, passes),
        [*notes, *(note for p in passes for note in p.notes)], seed, [f for p in passes for f in p.fits],
    )  # fmt: skip


def _steps(grid: Grid, backbone: Backbone) -> tuple[list[Step], list[str]]:
    """The steps to try, those that need no vectors fitted to the model; and why the others cannot be tried."""
    steps: list[Step] = []
    notes = []
    for post in grid.posts:
        try:
            steps.append((spelled([post]), post.of(backbone) if isinstance(post, EmbedFilter) else post))
        except AfterwordError as e:
            notes.append(str(e))
    return steps, notes


def score(encoder: Encoder, pairs: ScoredPairs) -> float:
    """Spearman's correlation between an encoder's cosines and the scores of pairs."""
    return spearman(_cosines(encoder, pairs), pairs.gold)


def _cosines(encoder: Encoder, pairs: ScoredPairs) -> Array:
    vectors = embed(encoder, (*pairs.left, *pairs.right))
    return cosines(vectors[: len(pairs.left)], vectors[len(pairs.left) :])


def _layouts(
    encoder: Encoder, tried: Sequence[Family], texts: Sequence[str], limits: Limits, notes: list[str]
) -> Iterator[tuple[list[Family], list[TokenizedText]]]:
    """The families that share a forward, with the texts as written for that forward; notes on those without room."""
    backbone, limit = encoder.backbone, limits.max_length
    methods = [replace(f.first, layout=with_default_prompt(encoder, f.first.layout)) for f in tried]
    for share in shares(methods, backbone):
        layouts = list(dict.fromkeys(methods[i].layout for i in share.methods))
        # a text that is truncated in two copies may fit in one: then each layout gets a forward of its own
        if len(layouts) > 1 and not any(w.kept < w.total for w in share.layout.write(texts, backbone.tokenizer, limit)):
            layouts = [share.layout]
        for layout in layouts:
            members = [tried[i] for i in share.methods if len(layouts) == 1 or methods[i].layout == layout]
            try:
                writings = write_texts(layout, texts, backbone, limits)
            except InputError as e:
                if any(family.asked for family in members):
                    raise
                notes.append(f"{members[0].first}: {e}")
                continue
            yield members, writings


def with_default_prompt(encoder: Encoder, layout: Layout) -> Layout:
    """The layout with the encoder's default prompt prepended, as `Encoder.encode` does it."""
    return with_prompt(layout, choose_prompt(encoder.prompts, encoder.default_prompt_name))


def _default(encoder: Encoder, recipes: Sequence[Recipe]) -> int | None:
    """The index of the recipe that equals the given encoder; None if no recipe does."""
    if not all(isinstance(step, Normalise) for step in encoder.post):
        return None
    return next((i for i, r in enumerate(recipes) if r.post == "none" and r.method == encoder.method), None)


def _heads(encoder: Encoder, passes: Sequence[SearchResult]) -> Array | None:
    facts = encoder.backbone.facts
    correlation = next((p.correlation for p in passes if p.correlation is not None), None)
    return None if correlation is None else correlation.reshape(facts.layers, facts.heads)
