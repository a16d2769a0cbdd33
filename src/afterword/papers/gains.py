"""The gain of one encoder over another by kind of sentence pair: source, length, negation, where the texts differ.

BeLLM's first version asks for it ("DeeLM", next check 3): do bidirectional layers help some kinds of sentences more?
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..encoder import Encoder
from ..errors import InputError
from ..methods import Ensemble
from ..tasks.pairs import ScoredPairs
from ..tasks.scores import LEVEL, Bootstrap, Interval, spearman
from .attention import forward_attention
from .measurement import Measurement

Array = NDArray[np.floating]
Kinds = dict[str, NDArray[np.bool_]]
"""Which pairs are of each kind (n,)."""

FEWEST = 30
"""A kind of fewer pairs is listed without scores."""

ENGLISH = frozenset("no not never none nobody nothing nowhere neither nor cannot without nt n't".split())
CHINESE = frozenset("不没無无未勿莫")
WORD = re.compile(r"n't\b|\w+(?:'\w+)?|[^\w\s]")
HAN = re.compile("[\u3400-\u9fff]")


@dataclass(frozen=True)
class Gain(Measurement):
    """The gain of the second encoder over the first on one kind of pairs. Correlations are Spearman's.

    Attributes:
        by: what the kinds differ in: "all", "subset", "length", "negation", "difference", "overlap".
        kind: name of the kind.
        pairs: number of pairs.
        first, second: correlations of the two encoders.
        interval: 95 % bootstrap interval of second - first, the same draws for both.
        others: gain of this kind less that of all other pairs.
        others_interval: 95 % bootstrap interval of that.
        forward: mean share of attention to later tokens in the second encoder's bidirectional layers; NaN if it has
            no such layers, or their attention cannot be read.
    """

    by: str
    kind: str
    pairs: int
    first: float
    second: float
    interval: Interval
    others: float
    others_interval: Interval
    forward: float

    @property
    def gain(self) -> float:
        """Second less first."""
        return self.second - self.first

    def to_json(self) -> dict[str, object]:
        """The fields, and the gain."""
        return {**super().to_json(), "gain": None if math.isnan(self.gain) else self.gain}


def gains(first: Encoder, second: Encoder, pairs: ScoredPairs) -> list[Gain]:
    """Compare two encoders on scored pairs by kind of pair.

    Args:
        first: the baseline.
        second: the encoder that is compared with it.
        pairs: scored pairs.

    Returns:
        All pairs first, then the kinds; where the pairs have no more than one subset, none by subset.

    Raises:
        InputError: fewer than `FEWEST` pairs, or constant scores.
    """
    if len(pairs.gold) < FEWEST:
        raise InputError(f"{len(pairs.gold)} pairs say nothing about kinds of pairs: give at least {FEWEST}")
    if np.ptp(pairs.gold) == 0:
        raise InputError(f"all {len(pairs.gold)} scores are {pairs.gold[0]:.6g}: a correlation needs different ones")
    a, b = (pairs.score(encoder, 0).items["similarity"] for encoder in (first, second))
    forward = _forward(second, pairs)
    found = [_gain("all", "all pairs", np.ones(len(a), bool), pairs.gold, a, b, forward)]
    for by, kinds in kinds_of(pairs).items():
        found += [_gain(by, kind, at, pairs.gold, a, b, forward) for kind, at in kinds.items()]
    return found


def kinds_of(pairs: ScoredPairs) -> Mapping[str, Kinds]:
    """The kinds of pairs, by what they differ in.

    - subset: the source that the data name.
    - length: words of both texts together, in thirds.
    - negation: in how many of the two texts a word negates.
    - difference: the position of the words that only one of the texts has, as a share of its length, in thirds.
    - overlap: the share of the words of both texts that both have (Jaccard), in thirds.

    Args:
        pairs: n scored pairs.

    Returns:
        Per division, which pairs are of each kind (n,); each pair is of at most one.
    """
    left, right = ([words_of(t) for t in side] for side in (pairs.left, pairs.right))
    both = list(zip(left, right, strict=True))
    negated = np.array([negates(a) + negates(b) for a, b in both])
    shared = np.array([len({*a} & {*b}) / max(len({*a} | {*b}), 1) for a, b in both])
    at = np.array([_where(a, b) for a, b in both])
    divisions: dict[str, Kinds] = {}
    names = sorted(set(pairs.subsets))
    if len(names) > 1:
        divisions["subset"] = {name or "(none)": np.array([s == name for s in pairs.subsets]) for name in names}
    divisions["length"] = _thirds(np.array([len(a) + len(b) for a, b in both], float), "short", "middle", "long")
    divisions["negation"] = {f"in {n} of the texts": negated == k for k, n in enumerate(("none", "one", "both"))}
    divisions["difference"] = {**_thirds(at, "early", "middle", "late"), "no word": np.isnan(at)}
    divisions["overlap"] = _thirds(shared, "little", "middle", "much")
    return divisions


def words_of(text: str) -> list[str]:
    """The words of a text in lower case; of Chinese, each character is a word.

    >>> words_of("He isn't here."), words_of("我不去")
    (['he', "isn't", 'here', '.'], ['我', '不', '去'])
    """
    return [part for word in WORD.findall(text.lower()) for part in (list(word) if HAN.search(word) else [word])]


def negates(words: Sequence[str]) -> bool:
    """Whether one of the words is a negation.

    >>> negates(["is", "n't"]), negates(["isn't"]), negates(["note"]), negates(["我", "不"])
    (True, True, False, True)
    """
    return any(w in ENGLISH or w in CHINESE or w.endswith("n't") for w in words)


def _where(a: Sequence[str], b: Sequence[str]) -> float:
    """The mean place of the words that only one of two texts has, from 0 to 1; NaN if there is none."""
    places = [(i + 0.5) / len(x) for x, y in ((a, {*b}), (b, {*a})) for i, word in enumerate(x) if word not in y]
    return float(np.mean(places)) if places else math.nan


def _thirds(values: Array, *names: str) -> Kinds:
    """Three kinds of about equal size by a value; equal values are of one kind, and NaN of none."""
    low, high = np.nanquantile(values, [1 / 3, 2 / 3]) if not np.isnan(values).all() else (math.nan, math.nan)
    return dict(zip(names, (values <= low, (values > low) & (values <= high), values > high), strict=True))


def _gain(by: str, kind: str, at: NDArray[np.bool_], gold: Array, a: Array, b: Array, forward: Array | None) -> Gain:
    nothing, count = (math.nan, math.nan), int(at.sum())
    share = math.nan if forward is None or not count else float(forward[at].mean())
    if count < FEWEST:
        return Gain(by, kind, count, math.nan, math.nan, nothing, math.nan, nothing, share)
    first, second = spearman(a[at], gold[at]), spearman(b[at], gold[at])
    drawn, others, other_drawn = _draws(gold[at], a[at], b[at], 0), math.nan, None
    if len(gold) - count >= FEWEST:
        others = spearman(b[~at], gold[~at]) - spearman(a[~at], gold[~at])
        other_drawn = _draws(gold[~at], a[~at], b[~at], 1)
    against = nothing if other_drawn is None else _interval(drawn - other_drawn)
    return Gain(by, kind, count, first, second, _interval(drawn), second - first - others, against, share)


def _draws(gold: Array, a: Array, b: Array, seed: int) -> Array:
    """The gain in each bootstrap draw."""
    bootstrap = Bootstrap(gold, seed)
    return bootstrap.spearman(b) - bootstrap.spearman(a)


def _interval(drawn: Array) -> Interval:
    if np.isnan(drawn).all():
        return math.nan, math.nan
    low, high = np.nanquantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def _forward(encoder: Encoder, pairs: ScoredPairs) -> Array | None:
    """Per pair (n,), the share of attention that looks forward in the bidirectional layers; None without any."""
    method = encoder.method
    sight = None if isinstance(method, Ensemble) else method.sight
    if not (sight and sight.both_ways) or sight.couple != "replace" or not encoder.backbone.facts.attention:
        return None
    texts = list(dict.fromkeys(pairs.texts()))
    found = forward_attention(encoder, texts)
    chosen = [n - 1 for n in found.both_ways]
    share = found.per_text[:, chosen].mean(1)
    at = {text: i for i, text in enumerate(texts)}
    every = np.array([share[at[t]] for t in pairs.texts()])
    return np.asarray((every[: len(pairs.left)] + every[len(pairs.left) :]) / 2)
