"""From a model and scored pairs to the best recipe, and how far to trust it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..encode.limits import Limits
from ..encode.options import choose_prompt
from ..encode.sharing import shares
from ..encoder import Encoder
from ..errors import InputError
from ..post import Normalise
from ..tasks.pairs import ScoredPairs
from ..tasks.scores import cosines, quantize, spearman
from ..tasks.task import as_read, embed
from ..text.inputs import with_prompt
from ..text.layout import Layout
from ..text.segments import TokenizedText
from .choice import Choice, choose, halves
from .head_correlation import fitted, inverse_frequencies, written
from .recipes import Family, Grid, Recipe, families
from .search import Search, Tried

Array = NDArray[np.floating[Any]]


@dataclass
class Tuned:
    """What tuning found.

    Attributes:
        encoder: the default, as it was given.
        recipes: all that were tried (m).
        cosines: of the n pairs (m, n).
        gold: scores (n,).
        split: indices of the pairs that rank, and of those that confirm.
        choice: which recipe, and why.
        correlation: of each head's diagonal with tf-idf (L, H); None where heads were not read.
        notes: what a reader must know.
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

    def made(self, index: int) -> Encoder:
        """The encoder of a recipe, fitted."""
        if index == self.choice.default:
            return self.encoder
        normal = tuple(step for step in self.encoder.post if isinstance(step, Normalise))
        return replace(self.encoder, method=self.recipes[index].method, post=(*self._fits[index](), *normal))

    @property
    def chosen(self) -> Encoder:
        """The encoder to use."""
        return self.made(self.choice.chosen)


def tune(
    encoder: Encoder,
    pairs: ScoredPairs,
    grid: Grid | None = None,
    *,
    seed: int = 0,
    limits: Limits | None = None,
    told: Callable[[int], object] = lambda _: None,
) -> Tuned:
    """Find the best recipe for a model on scored pairs, in one forward per text and layout.

    Args:
        encoder: the model, with the recipe to beat.
        pairs: at least 40, better some hundreds.
        grid: what to try.
        seed: of the halves and of the bootstrap.
        limits: how much at a time; texts that are too long are cut, with a warning.
        told: hears how many more texts are done, both of every pair in each layout.

    Raises:
        InputError: too few pairs, or no recipe with a correlation.
        MethodError: the grid asks for what the model has not.

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
    inverse = inverse_frequencies(fitted(backbone, ids))
    frequency = fitted(backbone, [ids[i] for i in (*split[0], *(split[0] + len(pairs.gold)))])
    tried = [
        Search(backbone, some, writings, pairs.gold, split[0], grid.posts, inverse, limits, told).run()
        for some, writings in _layouts(encoder, families(grid, backbone, frequency), texts, limits)
    ]
    recipes = [r for t in tried for r in t.recipes]
    columns = [t.cosines for t in tried]
    default = _default(encoder, recipes)
    if default is None:
        default = len(recipes)
        recipes.append(Recipe(encoder.method, "its own"))
        columns.append(_encoded(encoder, pairs)[None].astype(columns[0].dtype))
    found = quantize(np.concatenate(columns))
    choice = choose(recipes, found, pairs.gold, split, default, seed)
    return Tuned(
        encoder, recipes, found, pairs.gold, split, choice, _heads(encoder, tried),
        [note for t in tried for note in t.notes], seed, [f for t in tried for f in t.fits],
    )  # fmt: skip


def score(encoder: Encoder, pairs: ScoredPairs) -> float:
    """Spearman's correlation of an encoder's cosines with the scores."""
    return spearman(_encoded(encoder, pairs), pairs.gold)


def _encoded(encoder: Encoder, pairs: ScoredPairs) -> Array:
    vectors = embed(encoder, (*pairs.left, *pairs.right))
    return cosines(vectors[: len(pairs.left)], vectors[len(pairs.left) :])


def _layouts(
    encoder: Encoder, found: Sequence[Family], texts: Sequence[str], limits: Limits
) -> Iterator[tuple[list[Family], list[TokenizedText]]]:
    """Families that share a forward, and the texts as they are written for it."""
    backbone, limit = encoder.backbone, limits.max_length
    leads = [replace(f.lead, layout=prompted(encoder, f.lead.layout)) for f in found]
    for share in shares(leads, backbone):
        layouts = list(dict.fromkeys(leads[i].layout for i in share.methods))
        # what is cut for two copies may be whole in one: then each layout has a forward of its own
        if len(layouts) > 1 and not any(w.kept < w.total for w in share.layout.write(texts, backbone.tokenizer, limit)):
            layouts = [share.layout]
        for layout in layouts:
            members = [found[i] for i in share.methods if len(layouts) == 1 or leads[i].layout == layout]
            yield members, written(layout, texts, backbone, limits)


def prompted(encoder: Encoder, layout: Layout) -> Layout:
    """The layout with the encoder's default prompt in front, as `Encoder.encode` has it."""
    return with_prompt(layout, choose_prompt(encoder.prompts, encoder.default_prompt_name))


def _default(encoder: Encoder, recipes: Sequence[Recipe]) -> int | None:
    """The recipe that the encoder is already, where it is one of them."""
    if not all(isinstance(step, Normalise) for step in encoder.post):
        return None
    return next((i for i, r in enumerate(recipes) if r.post == "none" and r.method == encoder.method), None)


def _heads(encoder: Encoder, tried: Sequence[Tried]) -> Array | None:
    facts = encoder.backbone.facts
    found = next((t.correlation for t in tried if t.correlation is not None), None)
    return None if found is None else found.reshape(facts.layers, facts.heads)
