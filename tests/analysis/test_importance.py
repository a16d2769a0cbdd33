"""Importance against TF-IDF: weights by hand, heads by a model's own eager attention, correlations by scipy."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats
from tests.eager import Eager
from tests.tiny import tiny

from afterword import Encoder, classical, reba
from afterword.analysis.impact import impact
from afterword.analysis.importance import heads_follow, impact_follows, tfidf_weights
from afterword.errors import InputError

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
    columns, wanted = np.concatenate([impact(encoder, t).columns for t in TEXTS]), np.concatenate(weights)
    assert found.tokens == len(wanted) == len(columns)
    assert found.pearson == pytest.approx(stats.pearsonr(columns, wanted)[0])
    assert found.spearman == pytest.approx(stats.spearmanr(columns, wanted)[0])


def test_heads_follow(tmp_path: Path):
    encoder, eager = Encoder.load(tiny("bert", tmp_path), reba()), Eager(tmp_path)
    weights = tfidf_weights(encoder, TEXTS, CORPUS)
    found = heads_follow(encoder, TEXTS, weights)
    assert len(found) == 3 * 4 and [f.spearman for f in found] == sorted((f.spearman for f in found), reverse=True)
    parts = []
    for text in TEXTS:
        with torch.no_grad():
            ids = torch.tensor([eager.tokenizer(text).input_ids])
            attention = torch.stack(eager.model(input_ids=ids, output_attentions=True).attentions)[:, 0]
        parts.append(attention.diagonal(dim1=-2, dim2=-1)[..., 1:-1].double().numpy())
    diagonals = np.concatenate(parts, -1)
    for f in found:
        layer, head = (int(part) - 1 for part in f.name.split("-"))
        wanted = stats.pearsonr(diagonals[layer, head], np.concatenate(weights))[0]
        assert f.pearson == pytest.approx(wanted, abs=1e-4)


def test_constant_weights_are_undefined_and_long_texts_refused(tmp_path: Path):
    encoder = Encoder.load(tiny("bert", tmp_path), classical(), max_length=6)
    flat = [np.ones(2), np.ones(1)]
    assert all(math.isnan(f.pearson) and math.isnan(f.spearman) for f in heads_follow(encoder, ["ab", "c"], flat))
    with pytest.raises(InputError, match="text 1 is over max_length=6"):
        heads_follow(encoder, ["ab", "abcdefg"], flat)
