"""Near-duplicates are those of all pairs in float64, whatever the blocks, the order and the number of threads."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from afterword.errors import InputError
from afterword.groups import duplicates as module
from afterword.groups.duplicates import cosines, error_bound, joined, near_duplicates

RANDOM = np.random.default_rng(0)


def near(rows: int, width: int, groups: int, noise: float = 0.3) -> NDArray[np.float32]:
    """Rows around some centres."""
    centres = RANDOM.standard_normal((groups, width))
    found = centres[RANDOM.integers(0, groups, rows)] + noise * RANDOM.standard_normal((rows, width))
    return found.astype(np.float32)


def naive(vectors: NDArray[np.float32], over: float) -> list[int]:
    """The first row of each row's group, by all pairs one after the other."""
    wide = vectors.astype(np.float64)
    first = list(range(len(wide)))
    for i in range(len(wide)):
        for j in range(i):
            size = np.sqrt((wide[i] * wide[i]).sum() * (wide[j] * wide[j]).sum())
            if size and (wide[i] * wide[j]).sum() / size >= over:
                low, high = sorted((first[i], first[j]))
                first = [low if one == high else one for one in first]
    return first


@given(st.integers(0, 2**31), st.integers(0, 40), st.integers(1, 9), st.sampled_from([1, 3, 7, 2048]))
@settings(max_examples=30, deadline=None)
def test_all_pairs_one_after_the_other_say_the_same(seed: int, rows: int, width: int, block: int):
    random = np.random.default_rng(seed)
    vectors = random.integers(-2, 3, (rows, width)).astype(np.float32)  # many equal, opposite and zero rows
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK", block)
        for over in (1e-9, 0.5, 0.8, 1.0):  # cosines of small whole numbers are often just these
            found = near_duplicates(vectors, over)
            assert found.kept.tolist() == naive(vectors, over)


@pytest.mark.parametrize("block", [64, 100, 2048])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_pair_just_at_the_threshold_is_decided_alike_everywhere(
    monkeypatch: pytest.MonkeyPatch, block: int, threads: int
):
    """Thresholds are cosines of pairs, and their neighbours among the float64 numbers."""
    limits = pytest.importorskip("threadpoolctl").threadpool_limits
    vectors = near(300, 33, 12)
    some = RANDOM.integers(0, 300, (6, 2))
    at = cosines(vectors, some[:, 0], some[:, 1])
    monkeypatch.setattr(module, "BLOCK", block)
    with limits(threads):
        for value in np.clip(np.abs(at), 0.1, 1):
            for over in (np.nextafter(value, 0), value, min(np.nextafter(value, 2), 1.0)):
                assert near_duplicates(vectors, over).kept.tolist() == naive_fast(vectors, over)


def naive_fast(vectors: NDArray[np.float32], over: float) -> list[int]:
    """The same as `naive`, by the pairs' cosines at once."""
    rows, columns = np.triu_indices(len(vectors), 1)
    alike = cosines(vectors, rows, columns) >= over
    return joined(np.arange(len(vectors)), rows[alike], columns[alike]).tolist()


def test_the_order_of_the_rows_changes_no_group():
    vectors, order = near(700, 20, 40), RANDOM.permutation(700)
    at = float(cosines(vectors, np.array([3]), np.array([5]))[0])
    for over in (abs(at), 0.9, 0.95):
        kept, shuffled = near_duplicates(vectors, over).kept, near_duplicates(vectors[order], over).kept
        groups = {frozenset(np.flatnonzero(kept == one).tolist()) for one in kept}
        assert groups == {frozenset(order[np.flatnonzero(shuffled == one)].tolist()) for one in shuffled}


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_the_length_of_vectors_does_not_count(scale: float):
    vectors = near(100, 8, 9)
    found = near_duplicates(vectors * np.float32(scale), 0.9)
    assert found.kept.tolist() == near_duplicates(vectors, 0.9).kept.tolist() and len(found.repeats) > 20


def test_the_bound_holds_for_products_in_any_order():
    vectors = np.abs(near(200, 384, 5))  # sums of one sign have the largest error
    scaled = module.unit(vectors)
    rows, columns = np.triu_indices(200)
    exact = cosines(vectors, rows, columns)
    one_by_one = np.zeros(len(rows), np.float32)
    for i in range(384):
        one_by_one += scaled[rows, i] * scaled[columns, i]
    for found in ((scaled @ scaled.T)[rows, columns], one_by_one):
        assert np.abs(found - exact).max() < error_bound(384) / 2


def test_a_chain_is_one_group_and_tells_the_cosine_to_the_kept_row():
    angles = np.deg2rad([0, 20, 40, 60, 170])
    found = near_duplicates(np.stack([np.cos(angles), np.sin(angles)], axis=1), 0.9)
    assert found.kept.tolist() == [0, 0, 0, 0, 4] and found.repeats.tolist() == [1, 2, 3]
    assert found.cosines == pytest.approx(np.cos([*angles[:4], 0]), abs=1e-6)


@pytest.mark.parametrize("vectors", [np.zeros((0, 3)), np.ones((1, 3)), np.zeros((2, 3)), np.zeros((3, 0))])
def test_few_rows_and_rows_of_zeros_repeat_nothing(vectors: NDArray[np.float64]):
    found = near_duplicates(vectors, 0.5)
    assert found.kept.tolist() == list(range(len(vectors))) and not len(found.repeats)
    assert found.cosines.tolist() == [1.0] * len(vectors)


def test_equal_rows_have_a_cosine_of_just_one():
    vectors = np.repeat(near(50, 384, 50), 2, axis=0)
    found = near_duplicates(vectors, 1.0)
    assert found.repeats.tolist() == list(range(1, 100, 2)) and set(found.cosines) == {1.0}


def test_progress_counts_all_rows(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "BLOCK", 40)
    done: list[int] = []
    near_duplicates(near(100, 3, 4), 0.9, done.append)
    assert done == [40, 40, 20]


@pytest.mark.parametrize("over", [0, -0.5, 1.0001, float("nan"), float("inf")])
def test_a_threshold_out_of_range_is_refused(over: float):
    with pytest.raises(InputError, match=r"the least cosine of a repeat lies above 0 and is at most 1, as 0.9"):
        near_duplicates(np.eye(2), over)


def test_torch_tensors_are_vectors():
    assert near_duplicates(torch.eye(2), 0.5).kept.tolist() == [0, 1]
