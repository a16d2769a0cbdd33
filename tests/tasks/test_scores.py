"""Correlations against scipy's, on ties and on what has no correlation."""

import math

import numpy as np
import pytest
from scipy import stats

from afterword.errors import InputError
from afterword.tasks.scores import (
    Bootstrap,
    bootstrap,
    cosines,
    pearson,
    published_mean,
    ranks,
    spearman,
    spearmans,
)

RANDOM = np.random.default_rng(0)
GOLD = RANDOM.integers(0, 6, 90).astype(float)  # with ties
COLUMNS = np.stack([RANDOM.normal(size=90), GOLD + RANDOM.normal(size=90), RANDOM.integers(0, 4, 90), -GOLD])


@pytest.mark.parametrize("n", [2, 5, 1000])
@pytest.mark.parametrize("ties", [False, True])
def test_correlations_equal_scipys(n: int, ties: bool):
    x, y = RANDOM.normal(size=(2, n)) + np.linspace(0, 2, n)
    if ties:
        x, y = np.round(x, 0) + (np.arange(n) == 0), np.round(y, 0) + (np.arange(n) == 0) / 4
    assert pearson(x, y) == pytest.approx(stats.pearsonr(x, y)[0], abs=1e-12)
    assert spearman(x, y) == pytest.approx(stats.spearmanr(x, y)[0], abs=1e-12)
    assert ranks(x).tolist() == stats.rankdata(x).tolist()


@pytest.mark.parametrize("bad", [[1.0, 1.0, 1.0], [1.0, math.nan, 2.0], [1.0, math.inf, 2.0]])
def test_what_has_no_correlation_is_nan_and_not_zero(bad: list[float]):
    assert math.isnan(spearman(bad, [1, 2, 3])) and math.isnan(pearson([1, 2, 3], bad))


def test_lists_that_do_not_pair_are_refused():
    with pytest.raises(InputError, match=r"shapes \(2,\) and \(3,\)"):
        spearman([1, 2], [1, 2, 3])
    with pytest.raises(InputError, match="at least 2"):
        pearson([1], [1])


def test_cosines_go_row_by_row():
    a, b = np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]]), np.array([[2.0, 0.0], [0.0, 3.0], [1.0, 0.0]])
    assert cosines(a, b) == pytest.approx([1, math.sqrt(0.5), 0])


def test_bootstrap_of_a_mean_has_the_width_that_theory_gives():
    values = RANDOM.normal(size=2000)
    low, high = bootstrap(lambda x: float(x.mean()), values, draws=2000)
    assert high - low == pytest.approx(2 * 1.96 * values.std() / math.sqrt(2000), rel=0.1)
    assert (low, high) == bootstrap(lambda x: float(x.mean()), values, draws=2000)
    assert all(math.isnan(end) for end in bootstrap(spearman, [1.0, 1.0], [1.0, 2.0], draws=5))


def test_the_published_average_is_of_rounded_scores():
    # 0.125 and 0.375 round to even; the mean of what was rounded is 0.25, rounded once more
    assert published_mean([0.125, 0.375]) == 0.25
    assert published_mean([72.374, 80.596, 75.594]) == 76.19
    assert math.isnan(published_mean([]))


def test_ranks_go_along_the_last_axis():
    values = RANDOM.integers(-3, 4, (2, 5, 30)) * 0.5
    assert np.array_equal(ranks(values), stats.rankdata(values, axis=-1))
    assert ranks(np.zeros((2, 0))).shape == (2, 0)
    assert ranks(np.array([-0.0, 0.0, 1.0])).tolist() == [1.5, 1.5, 3.0]


def test_correlations_are_scipys():
    assert spearmans(COLUMNS, GOLD) == pytest.approx([stats.spearmanr(c, GOLD).statistic for c in COLUMNS], abs=1e-12)
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
