"""The nearest pairs are those that sorting all similarities gives, whatever the blocks."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterword.cli import nearest as module
from afterword.cli.nearest import nearest, numbered
from afterword.encode.similarity import similarity


@given(
    n=st.integers(1, 9), m=st.integers(0, 30), size=st.integers(1, 31), top=st.none() | st.integers(0, 40),
    threshold=st.none() | st.sampled_from([-3.0, 0.0, 2.0, 9.0]), at_once=st.integers(1, 50), seed=st.integers(0, 99),
)  # fmt: skip
def test_blocks_give_what_sorting_everything_gives(n, m, size, top, threshold, at_once, seed):
    draw = np.random.default_rng(seed)
    a, b = (draw.integers(-1, 2, (k, 3)).astype(np.float32) for k in (n, m))  # many similarities are equal
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PAIRS", at_once)
        pairs = nearest(a, blocks(b, size), "dot", top=top, threshold=threshold)
    table = a @ b.T
    wanted = sorted(
        (-table[i, j], i, j) for i in range(n) for j in range(m) if threshold is None or table[i, j] >= threshold
    )
    found = zip((-pairs.scores).tolist(), pairs.rows.tolist(), pairs.columns.tolist(), strict=True)
    assert list(found) == [(float(s), i, j) for s, i, j in wanted[:top]]


def blocks(vectors, size):
    """Vectors in blocks of so many rows."""
    return [(np.arange(i, min(i + size, len(vectors))), vectors[i : i + size]) for i in range(0, len(vectors), size)]


def test_rows_of_one_array_are_compared_once_and_never_with_themselves():
    a = np.random.default_rng(0).normal(size=(7, 4)).astype(np.float32)
    pairs = nearest(a, blocks(a, 3), itself=True)
    assert sorted(zip(pairs.rows.tolist(), pairs.columns.tolist(), strict=True)) == [
        (i, j) for i in range(7) for j in range(i + 1, 7)
    ]
    assert np.allclose(pairs.scores, similarity(a, a)[pairs.rows, pairs.columns])
    assert (np.diff(pairs.scores) <= 0).all()


def test_rows_have_the_numbers_that_they_come_with():
    a = np.float32([[1, 0]])
    pairs = nearest(a, [(np.array([3, 9]), np.float32([[0, 1], [1, 0]])), (np.array([12]), a)], top=2)
    assert pairs.columns.tolist() == [9, 12]
    assert nearest(a, numbered(a[:0]), top=2).scores.tolist() == []
