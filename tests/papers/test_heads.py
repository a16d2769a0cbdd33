"""Importance against TF-IDF: weights by hand, heads by a model's own eager attention, correlations by scipy."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from tests.eager import Eager
from tests.tiny import tiny

from afterword import Encoder, classical, reba
from afterword.errors import InputError
from afterword.papers.heads import follow, heads_follow, impact_follows, tfidf_weights
from afterword.papers.impact import impact
from afterword.tune import label_free

TEXTS = ["abba", "thing", "a b", "zz top"]
CORPUS = ["a", "b a", "ab", "thing a"]


def test_weights_by_hand(tmp_path: Path):
    encoder = Encoder.load(tiny("bert", tmp_path), classical())
    found = tfidf_weights(encoder, ["abb"], CORPUS)
    a, b = math.log2(5 / 5), math.log2(5 / 3)  # of four texts, a stands in four and b in two
    np.testing.assert_allclose(found[0], [1 * a, 2 * b, 2 * b], rtol=1e-12)


def test_the_impact_matrix_follows(tmp_path: Path):
    encoder = Encoder.load(tiny("bert", tmp_path), classical())
    weights = tfidf_weights(encoder, TEXTS, CORPUS)
    found = impact_follows(encoder, TEXTS, weights)
    columns = [impact(encoder, t).columns for t in TEXTS]
    assert found.tokens == sum(map(len, weights)) and (found.texts, found.undefined) == (3, 1)  # "thing" has one weight
    assert found.pearson == pytest.approx(mean_over_texts(stats.pearsonr, columns, weights))
    assert found.spearman == pytest.approx(mean_over_texts(stats.spearmanr, columns, weights))


def mean_over_texts(correlation: Any, measured: Sequence[np.ndarray], weights: Sequence[np.ndarray]) -> float:
    both = zip(measured, weights, strict=True)
    return float(np.mean([correlation(m, w)[0] for m, w in both if np.ptp(w) > 0]))


def test_heads_follow(tmp_path: Path):
    encoder, eager = Encoder.load(tiny("bert", tmp_path), reba()), Eager(tmp_path)
    weights = tfidf_weights(encoder, TEXTS, CORPUS)
    found = heads_follow(encoder, TEXTS, weights)
    assert len(found) == 3 * 4 and [f.pearson for f in found] == sorted((f.pearson for f in found), reverse=True)
    parts = []
    for text in TEXTS:
        with torch.no_grad():
            ids = torch.tensor([eager.tokenizer(text).input_ids])
            attention = torch.stack(eager.model(input_ids=ids, output_attentions=True).attentions)[:, 0]
        parts.append(attention.diagonal(dim1=-2, dim2=-1)[..., 1:-1].double().numpy())
    for f in found:
        layer, head = (int(part) - 1 for part in f.name.split("-"))
        for value, correlation in ((f.pearson, stats.pearsonr), (f.spearman, stats.spearmanr)):
            wanted = mean_over_texts(correlation, [part[layer, head] for part in parts], weights)
            assert value == pytest.approx(wanted, abs=1e-4)


def test_a_head_has_the_correlation_by_which_tune_chooses(tmp_path: Path):
    encoder = Encoder.load(tiny("bert", tmp_path), classical(), dtype="float64")
    texts = ["a cat sat", "the dog ran off", "aaa", "b", "in the end the cat sat on the dog"]
    chosen = label_free(encoder, texts).correlation
    found = heads_follow(encoder, texts, tfidf_weights(encoder, texts, texts))
    assert {f.texts for f in found} == {3}  # "aaa" and "b" have one weight each
    for f in found:
        layer, head = (int(part) - 1 for part in f.name.split("-"))
        assert f.pearson == pytest.approx(chosen[layer, head], abs=1e-5)


def test_texts_with_one_weight_for_all_tokens_are_counted_and_left_out():
    (found,) = follow(["a"], [np.array([[1.0, 2, 4]]), np.array([[1.0, 2]])], [np.array([0.0, 1, 3]), np.ones(2)])
    assert (found.pearson, found.spearman) == (pytest.approx(1), pytest.approx(1))
    assert (found.tokens, found.texts, found.undefined) == (5, 1, 1)


def test_constant_weights_are_undefined_and_long_texts_refused(tmp_path: Path):
    encoder = Encoder.load(tiny("bert", tmp_path), classical(), max_length=6)
    flat = [np.ones(2), np.ones(1)]
    assert all(math.isnan(f.pearson) and math.isnan(f.spearman) for f in heads_follow(encoder, ["ab", "c"], flat))
    with pytest.raises(InputError, match="text 1 is over max_length=6"):
        heads_follow(encoder, ["ab", "abcdefg"], flat)
