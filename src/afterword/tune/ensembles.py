"""Recipes from vectors that are there already: means of two of the best recipes, and the named ensembles."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from ..backbone.backbone import Backbone
from ..encoder import Encoder
from ..errors import AfterwordError, InputError
from ..methods import AnyMethod, Ensemble, Method, ensemble
from ..methods.method import check_method
from ..post import Centre
from ..tasks.pairs import ScoredPairs
from ..tasks.scores import cosines, spearman
from ..tasks.task import embed
from .recipes import Recipe
from .search import SearchResult

BEST = 4
"""Of so many recipes, every two are joined."""
NAMED = ("ck", "moee")
"""The named ensembles that are tried; MetaEOL's takes eight forwards."""
Leader = tuple[Method, str, Tensor]
"""A method, its spelling, and its vectors of the left and the right texts (2, n, D)."""
Gold = NDArray[np.floating[Any]]
Indices = NDArray[np.intp]


def best_of(leaders: Iterable[Leader], gold: Gold, ranking: Indices) -> list[Leader]:
    """The `BEST` of some recipes on the pairs that rank, the best first; one of each spelling."""

    def rank(leader: Leader) -> float:
        left, right = leader[2][:, ranking].numpy()
        return float(np.nan_to_num(spearman(cosines(left, right), gold[ranking]), nan=-2.0))

    return sorted({leader[1]: leader for leader in leaders}.values(), key=rank, reverse=True)[:BEST]


def of_two(leaders: Sequence[Leader], ranking: Indices) -> SearchResult:
    """Join every two recipes of equal width by the mean of their vectors at length 1.

    Args:
        leaders: recipes without post-processing.
        ranking: indices of the pairs that rank recipes; centring is fitted on them alone.
    """
    found: list[tuple[AnyMethod, str, Tensor]] = []
    for (a, spec, left), (b, other, right) in combinations(leaders, 2):
        if left.shape == right.shape:
            named = f"ensemble:methods={json.dumps(f'{spec};{other}', ensure_ascii=False)},normalise=true"
            joined = (normalize(left, dim=-1) + normalize(right, dim=-1)) / 2
            found.append((ensemble([a, b], normalise=True), named, joined))
    return _as_they_are_and_centred(found, ranking)


def named_ensembles(encoder: Encoder, pairs: ScoredPairs, ranking: Indices) -> SearchResult:
    """The named ensembles that fit the model, each with the forwards of its methods."""
    texts, found, notes = (*pairs.left, *pairs.right), [], []
    for name in NAMED:
        method: Ensemble = ensemble(name)
        if _fits(encoder.backbone, method):
            try:
                vectors = embed(replace(encoder, method=method, post=()), texts)
            except InputError as e:  # a template leaves no room for the text
                notes.append(f"ensemble:{name}: {e}")
                continue
            found.append((method, f"ensemble:{name}", torch.from_numpy(vectors).unflatten(0, (2, -1))))
    result = _as_they_are_and_centred(found, ranking)
    result.notes += notes
    return result


def _fits(backbone: Backbone, method: AnyMethod) -> bool:
    try:
        check_method(backbone, method)
    except AfterwordError:
        return False
    return backbone.facts.causal


def _as_they_are_and_centred(found: Iterable[tuple[AnyMethod, str, Tensor]], ranking: Indices) -> SearchResult:
    result, columns = SearchResult(), []
    for method, spec, vectors in found:
        centre = Centre().fit(vectors[:, ranking].flatten(0, 1))
        result.recipes += [Recipe(method, "none", spec), Recipe(method, "centre", spec)]
        result.fits += [tuple, lambda centre=centre: (centre,)]  # type: ignore[misc]
        for left, right in (vectors, centre(vectors.flatten(0, 1)).unflatten(0, (2, -1))):
            columns.append(cosines(left.numpy(), right.numpy()))
    if columns:
        result.cosines = np.stack(columns)
    return result
