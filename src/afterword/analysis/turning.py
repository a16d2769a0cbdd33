"""The degradation experiment and its turning point: after how many causal layers a model's similarities only get worse.

Source: BeLLM, section 3.1 and Figure 4.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..backbone.bidirectional import AUTO, Sight
from ..encoder import Encoder
from ..errors import InputError, MethodError, MissingDataset
from ..methods import Method, classical, warn_if_idle
from ..methods.states import States
from ..tasks.pairs import SAME, Pairs, ScoredPairs
from ..tasks.rows import Folder
from ..tasks.scores import cosines, spearman
from ..tasks.task import as_read
from .result import Measurement

Array = NDArray[np.floating[Any]]

MARGIN = 0.01
"""A score counts as lower where it is lower by more than this."""

FEWEST = 30  # pairs: with fewer, one pair moves the curve more than a layer does
WINDOW = 512  # pairs whose vectors of every layer are in memory together


@dataclass(frozen=True)
class TurningPoint(Measurement):
    """Where a curve turns.

    The rule: let best be the highest score of the curve, from one layer kept on. The turning point is the largest
    number of layers whose score is not lower than best by more than `margin`; with each layer number beyond it the
    score is. The layers behind it are what BeLLM makes both-ways. A curve that does not fall at its end has none
    behind it; then it is the last one, as in the paper.

    Attributes:
        kept: causal layers up to the turning point.
        last: b, how many layers at the end should see both ways: those behind, at least one.
        falls: whether there are any behind.
        margin: see above.
        agreement: share of resamples of the pairs, drawn with replacement, that give the same `last`.
    """

    kept: int
    last: int
    falls: bool
    margin: float
    agreement: float


@dataclass(frozen=True)
class Curve(Measurement):
    """How well similarities follow people's scores, by the number of layers that are kept.

    Attributes:
        name: of the method.
        scores: Spearman's correlation with the first 0, 1 ... L layers kept (L + 1,); NaN where all similarities are
            equal, as with no layer and the last token of a template.
        pairs: how many.
        turning: None where the scores are undefined.
        note: why, where it is None.
    """

    name: str
    scores: tuple[float, ...]
    pairs: int
    turning: TurningPoint | None
    note: str = ""


def read_pairs(path: str | Path) -> ScoredPairs:
    """Scored pairs from a file of rows with "sentence1", "sentence2" and "score".

    Raises:
        DataError: it is not there, or not as it should be; the message names file and line.
    """
    if not Path(path).is_file():
        raise MissingDataset(f"{path} is not there: give a file of sentence1, sentence2 and score")
    return Pairs("pairs", str(path)).load(Folder(Path()))


def degradation(
    encoder: Encoder,
    pairs: ScoredPairs,
    methods: Mapping[str, Method] | Sequence[Method],
    *,
    margin: float = MARGIN,
    draws: int = 200,
    **options: Any,
) -> tuple[Curve, ...]:
    """The curve of each method over the model's layers, from one causal forward per text and template.

    A model that keeps its first t layers gives its final norm of hidden_states[t], so that one forward holds them all.

    Args:
        encoder: its model is what is looked at; its own method, prompts and steps are not used.
        pairs: with a person's score each, 30 at least.
        methods: how texts are written and pooled; their states and both-ways layers are left out.
        margin: see `TurningPoint`.
        draws: resamples for `TurningPoint.agreement`.
        options: of `Encoder.encode_many`.

    Returns:
        One curve per method, in order.

    Raises:
        MethodError: the model sees both ways already, or a method reads attention, which truncation would change.
        InputError: fewer than 30 pairs.
    """
    named = dict(methods) if isinstance(methods, Mapping) else {m.name: m for m in methods}
    layers = _check(encoder, pairs, named)
    kept: dict[tuple[str, int], Method] = {
        (name, t): replace(m, states=States(f"normed:{t}"), sight=Sight())
        for name, m in named.items()
        for t in range(layers + 1)
    }
    bare = Encoder(encoder.backbone, classical(), max_length=encoder.max_length)
    similar = _similarities(bare, pairs, kept, options)
    curves = []
    for name in named:
        rows = np.stack([similar[name, t] for t in range(layers + 1)])
        scores = tuple(_spearman(row, pairs.gold) for row in rows)
        turning = turning_point(scores, margin)
        if turning is not None:
            turning = replace(turning, agreement=_agreement(rows, pairs.gold, turning, draws))
        note = "" if turning is not None else _why(pairs.gold)
        curves.append(Curve(name, scores, len(pairs.gold), turning, note))
    return tuple(curves)


def turning_point(scores: Sequence[float], margin: float = MARGIN) -> TurningPoint | None:
    """Where a curve turns, by the rule of `TurningPoint`; None where its end is undefined.

    Args:
        scores: with 0, 1 ... L layers kept.
        margin: how much lower counts as lower.

    >>> turning_point([0.3, 0.40, 0.52, 0.515, 0.45]).last
    1
    """
    layers = len(scores) - 1
    found = [s for s in scores[1:] if not math.isnan(s)]
    if not found or math.isnan(scores[-1]):
        return None
    kept = max(t for t in range(1, layers + 1) if scores[t] >= max(found) - margin)
    return TurningPoint(kept, max(layers - kept, 1), kept < layers, margin, math.nan)


def resolve(method: Method, encoder: Encoder, pairs: ScoredPairs, *, margin: float = MARGIN) -> Method:
    """The method with its ``last="auto"`` replaced by the number of layers behind the model's turning point.

    The curve is that of the method's own template and pool. A method without "auto" is returned as it is.

    Args:
        method: as `bellm(last="auto")` makes it.
        encoder: of the model, with any method.
        pairs: with a person's score each; those of a development set.
        margin: see `TurningPoint`.

    Raises:
        MethodError: the model sees both ways already.
        InputError: too few pairs, or no turning point, with the reason.
    """
    if method.sight.last != AUTO:
        return method
    (curve,) = degradation(encoder, pairs, [method], margin=margin, draws=0)
    if curve.turning is None:
        raise InputError(f"{method.name}: {curve.note}")
    last = curve.turning.last
    name = method.name.replace("last auto", f"last {last}")
    found = replace(method, sight=replace(method.sight, last=last), name=name)
    warn_if_idle(found, stacklevel=3)
    return found


def _check(encoder: Encoder, pairs: ScoredPairs, methods: Mapping[str, Method]) -> int:
    facts = encoder.backbone.facts
    if not facts.causal:
        raise MethodError(f"{facts.kind} sees both ways already: it has no turning point, and bellm is for decoders")
    if facts.states != facts.layers:
        raise MethodError(
            f"{facts.kind} has attention in {facts.layers} of its {facts.states} layers: a turning point counts layers "
            "that can be opened, so give bellm a number of its own"
        )
    if len(pairs.gold) < FEWEST:
        raise InputError(f"{len(pairs.gold)} pairs are too few for a turning point: give at least {FEWEST}")
    for name, method in methods.items():
        if method.weigh.reads_attention:
            raise MethodError(f"{name} reads the attention of all layers: a turning point is found by mean or last")
    return facts.layers


def _similarities(
    encoder: Encoder, pairs: ScoredPairs, methods: Mapping[tuple[str, int], Method], options: Mapping[str, Any]
) -> dict[tuple[str, int], Array]:
    """Cosines of all pairs (n,) by method; vectors are held for a window of pairs."""
    parts: dict[tuple[str, int], list[Array]] = {key: [] for key in methods}
    for first in range(0, len(pairs.gold), WINDOW):
        left, right = ([as_read(t) for t in side[first : first + WINDOW]] for side in (pairs.left, pairs.right))
        texts = list(dict.fromkeys([*left, *right]))
        row = {text: i for i, text in enumerate(texts)}
        vectors = encoder.encode_many(texts, methods, **options)  # type: ignore[arg-type]  # any key names a method
        for key, found in vectors.items():
            parts[key].append(cosines(found[[row[t] for t in left]], found[[row[t] for t in right]]))  # type: ignore[index]
    return {key: np.concatenate(part) for key, part in parts.items()}


def _spearman(similar: Array, gold: Array) -> float:
    return math.nan if np.ptp(similar) < SAME else spearman(similar, gold)


def _agreement(rows: Array, gold: Array, turning: TurningPoint, draws: int) -> float:
    """Share of resamples of the pairs with the same number of layers behind the turning point."""
    random = np.random.default_rng(0)
    same = []
    for chosen in random.integers(0, len(gold), (draws, len(gold))):
        again = turning_point([_spearman(row[chosen], gold[chosen]) for row in rows], turning.margin)
        same.append(again is not None and again.last == turning.last)
    return float(np.mean(same)) if same else math.nan


def _why(gold: Array) -> str:
    if np.ptp(gold) == 0:
        return f"all {len(gold)} pairs have the score {gold[0]:g}: a correlation needs different ones"
    return "all pairs are equally similar, or vectors are not finite: the curve is undefined; try another pool"
