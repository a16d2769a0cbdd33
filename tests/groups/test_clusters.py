"""Clusters: numbered by size, the same for the same seed, and clear errors where there are none."""

import numpy as np
import pytest
from numpy.typing import NDArray

from afterword.errors import InputError
from afterword.groups.clusters import cluster

pytest.importorskip("sklearn")


def blobs(sizes: list[int], width: int = 16) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Rows around distant centres in random order, and the number of each row's centre."""
    random = np.random.default_rng(1)
    true = random.permutation(np.repeat(np.arange(len(sizes)), sizes))
    return (np.eye(width)[true] + 0.05 * random.standard_normal((len(true), width))).astype(np.float32), true


def test_clusters_are_found_and_numbered_by_size():
    vectors, true = blobs([200, 120, 60, 30])
    found = cluster(vectors, 4)
    assert np.array_equal(found.labels, true) and found.sizes.tolist() == [200, 120, 60, 30]
    assert found.scores == {}


def test_the_number_is_chosen_by_silhouette():
    vectors, true = blobs([100] * 5)
    found = cluster(vectors, "auto", seed=3)
    assert list(found.scores) == [2, 3, 5, 8, 12, 20, 30, 50]
    assert len(found.sizes) == 5 == max(found.scores, key=lambda k: found.scores[k])
    assert len(set(zip(true.tolist(), found.labels.tolist(), strict=True))) == 5


def test_the_same_seed_gives_the_same_labels():
    vectors = np.random.default_rng(0).standard_normal((2000, 8))
    first, again, other = (cluster(vectors, 7, seed=seed) for seed in (5, 5, 6))
    assert np.array_equal(first.labels, again.labels) and np.array_equal(first.nearness, again.nearness)
    assert not np.array_equal(first.labels, other.labels)
    assert first.sizes.tolist() == sorted(first.sizes, reverse=True)


def test_the_nearest_rows_of_a_cluster_come_first():
    vectors, _ = blobs([40, 20])
    found = cluster(vectors, 2)
    rows = found.nearest(1)
    assert len(rows) == 5 and set(found.labels[rows]) == {1}
    assert found.nearness[rows].min() >= np.delete(found.nearness, rows)[np.delete(found.labels, rows) == 1].max()
    assert np.all(np.diff(found.nearness[rows]) <= 0) and len(found.nearest(1, 100)) == 20


def test_lengths_do_not_count():
    vectors, true = blobs([40, 20])
    scaled = vectors * np.random.default_rng(0).uniform(0.01, 100, (60, 1))
    assert np.array_equal(cluster(scaled, 2).labels, true)


@pytest.mark.parametrize(
    ("vectors", "k", "seed", "message"),
    [
        (np.eye(3), 1, 0, "1 cluster: give at least 2"),
        (np.eye(3), 4, 0, "3 different vectors: 4 clusters need 4"),
        (np.ones((9, 3)), 2, 0, "1 different vector: 2 clusters need 2"),
        (np.ones((9, 3)), "auto", 0, "1 different vector: to choose their number, 3 are needed"),
        (np.zeros((0, 3)), 2, 0, "0 different vectors: 2 clusters need 2"),
        (np.full((3, 3), np.nan), 2, 0, "row 0 of the vectors is not finite"),
        (np.eye(3), 2, -1, "seed -1: give a number from 0 to 4294967295"),
    ],
)
def test_what_cannot_be_clustered_is_refused(vectors: NDArray[np.float64], k: int, seed: int, message: str):
    with pytest.raises(InputError, match=message):
        cluster(vectors, k, seed)


def test_as_many_clusters_as_rows_and_few_rows():
    assert sorted(cluster(np.eye(4), 4).labels) == [0, 1, 2, 3]
    assert list(cluster(np.eye(3), "auto").scores) == [2]
