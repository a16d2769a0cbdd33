"""Choose a recipe: rank all on one half of the pairs, take the simplest within noise, confirm it on the other half."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..tasks.scores import Bootstrap, Interval, spearmans
from .recipes import Recipe

Array = NDArray[np.floating[Any]]
Indices = NDArray[np.intp]

FEWEST = 40
"""Minimum number of pairs: with twenty in each half the interval is +-0.4 already."""


@dataclass(frozen=True)
class Choice:
    """The chosen recipe, and the numbers that led to it. Recipes are identified by index.

    Attributes:
        rank: Spearman's correlation of each recipe on the half that ranks (m,).
        confirm: the same on the half that confirms (m,).
        leader: the best recipe on the half that ranks.
        simplest: the simplest recipe that is worse than the leader there by no more than noise.
        chosen: `simplest`, if the half that confirms shows that it is better than the default; else the default.
        default: the recipe to beat.
        gain: how much better `simplest` is than the default on the half that confirms: a 95 % interval. If the
            default has no correlation there, because its cosines are constant, that of `simplest` itself: constant
            cosines know as much as a correlation of 0.
    """

    rank: Array
    confirm: Array
    leader: int
    simplest: int
    chosen: int
    default: int
    gain: Interval

    @property
    def improved(self) -> bool:
        """Whether a recipe better than the default was found and confirmed."""
        return self.chosen != self.default


def halves(pairs: int, seed: int) -> tuple[Indices, Indices]:
    """Indices of two random halves of the pairs.

    Raises:
        InputError: there are too few pairs.

    >>> [len(half) for half in halves(41, seed=0)]
    [20, 21]
    """
    if pairs < FEWEST:
        raise InputError(f"{pairs} pairs are too few for tuning: pass at least {FEWEST}, better several hundred")
    order = np.random.default_rng(seed).permutation(pairs)
    return order[: pairs // 2], order[pairs // 2 :]


def choose(
    recipes: Sequence[Recipe], cosines: Array, gold: Array, split: tuple[Indices, Indices], default: int, seed: int = 0
) -> Choice:
    """Choose a recipe.

    One half ranks all recipes; its best is the leader. From the default on, and then level by level (`Recipe.level`),
    the best of each level is compared with the leader there: the first that is worse by no more than one standard
    error of the difference is the one to take (Breiman et al. 1984, the one-standard-error rule; the error is that of
    a paired bootstrap). The other half only confirms it: if the 95 % interval
    of its gain over the default contains 0, the default stays.

    Args:
        recipes: all recipes (m).
        cosines: each recipe's cosines of the n pairs (m, n).
        gold: scores of the pairs (n,).
        split: the result of `halves`.
        default: index of the recipe to beat.
        seed: random seed of the bootstrap.

    Raises:
        InputError: no recipe has a defined correlation.
    """
    first, second = split
    rank, confirm = spearmans(cosines[:, first], gold[first]), spearmans(cosines[:, second], gold[second])
    if np.isnan(rank).all() or np.isnan(confirm).all():
        same = np.ptp(gold[first]) == 0 or np.ptp(gold[second]) == 0
        why = "the scores of a half are all equal" if same else "every recipe gives constant or non-finite cosines"
        raise InputError(f"no correlation is defined: {why}")
    leader = int(np.nanargmax(rank))
    ranking = Bootstrap(gold[first], seed)
    candidates = [default, *_best_by_level(recipes, rank), leader]
    simplest = next(i for i in candidates if i == leader or _within(ranking, cosines[leader, first], cosines[i, first]))
    confirming, tried = Bootstrap(gold[second], seed), cosines[simplest, second]
    undefined = np.isnan(confirm[default])
    gain = confirming.interval(tried) if undefined else confirming.gain(tried, cosines[default, second])
    better = simplest != default and gain[0] > 0
    return Choice(rank, confirm, leader, simplest, simplest if better else default, default, gain)


def _best_by_level(recipes: Sequence[Recipe], rank: Array) -> list[int]:
    best: dict[int, int] = {}
    for i, recipe in enumerate(recipes):
        if not np.isnan(rank[i]) and (recipe.level not in best or rank[i] > rank[best[recipe.level]]):
            best[recipe.level] = i
    return [best[level] for level in sorted(best)]


def _within(bootstrap: Bootstrap, leader: Array, other: Array) -> bool:
    """Whether a recipe is worse than the leader by no more than one standard error."""
    lost = bootstrap.spearman(leader) - bootstrap.spearman(other)
    return bool(lost.mean() <= lost.std())  # False for NaN, which constant cosines give
