"""Correlations and intervals of many recipes at once are those that the plain functions give one by one."""

import numpy as np
import pytest
from scipy.stats import spearmanr

from afterword.tasks.scores import bootstrap, spearman
from afterword.tune.bootstrap import Bootstrap, spearmans

RANDOM = np.random.default_rng(0)
GOLD = RANDOM.integers(0, 6, 90).astype(float)  # with ties
COLUMNS = np.stack([RANDOM.normal(size=90), GOLD + RANDOM.normal(size=90), RANDOM.integers(0, 4, 90), -GOLD])


def test_correlations_are_scipys():
    assert spearmans(COLUMNS, GOLD) == pytest.approx([spearmanr(c, GOLD).statistic for c in COLUMNS], abs=1e-12)
    assert spearmans(COLUMNS, GOLD) == pytest.approx([spearman(c, GOLD) for c in COLUMNS], abs=1e-12)


def test_what_has_no_correlation():
    same = np.full(90, 0.7, np.float32) + np.float32(6e-8) * RANDOM.integers(0, 2, 90).astype(np.float32)
    broken = np.where(np.arange(90) == 3, np.nan, COLUMNS[0]).astype(np.float32)
    assert np.isnan(spearmans(np.stack([same, broken]), GOLD)).all()
    assert np.isnan(spearmans(COLUMNS, np.ones(90))).all()


@pytest.mark.parametrize("column", range(3))
def test_intervals_are_those_of_the_plain_bootstrap(column):
    found = Bootstrap(GOLD, seed=3).interval(COLUMNS[column])
    assert found == pytest.approx(bootstrap(spearman, COLUMNS[column], GOLD, seed=3), abs=1e-12)


def test_differences_are_paired():
    a, b = COLUMNS[:2]
    found = Bootstrap(GOLD, seed=1).gain(b, a)
    slow = bootstrap(lambda x, y, g: spearman(y, g) - spearman(x, g), a, b, GOLD, seed=1)
    assert found == pytest.approx(slow, abs=1e-12)
    assert Bootstrap(GOLD).gain(a, a) == (0, 0)


def test_an_interval_of_nothing():
    assert np.isnan(Bootstrap(GOLD).interval(np.ones(90))).all()
