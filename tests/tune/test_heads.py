"""The map of heads: which one labels choose, which one tf-idf, and how the two agree."""

import numpy as np
import pytest
from tests.tune.made_up import load

from afterword.tasks.pairs import ScoredPairs
from afterword.tune import head_map, label_free, tune
from afterword.tune.heads import HeadMap, spelled_head


def test_without_labels_as_with_them(tmp_path):
    encoder = load("bert", tmp_path)
    left, right = (tuple(f"{w} cats number {i} sat" for i in range(40)) for w in ("big", "small"))
    tuned = tune(encoder, ScoredPairs(left, right, np.arange(40.0), ()))
    alone = label_free(encoder, [*left, *right])
    assert head_map(tuned).correlation == pytest.approx(alone.correlation, abs=1e-9)


def test_a_map():
    scores, correlation = np.array([[0.1, 0.5, 0.4], [0.3, 0.2, 0.6]]), np.array([[0.0, 0.2, 0.3], [0.1, np.nan, 0.2]])
    heads = HeadMap(correlation, scores)
    assert (heads.best, heads.label_free, heads.place) == ((1, 2), (0, 2), 3)
    assert spelled_head(heads.best) == "2-3"
    assert HeadMap(scores, scores).agreement == pytest.approx(1)
