"""Similarities and distances, near and far, in bounded memory."""

import numpy as np
import pytest
import torch

from afterword.encode.similarity import pairwise, similarity
from afterword.errors import InputError

A, B = (np.random.default_rng(i).standard_normal((n, 7)).astype(np.float32) for i, n in enumerate((4, 3)))
NAMES = ["cosine", "dot", "euclidean", "manhattan"]


def test_a_zero_vector_is_similar_to_nothing():
    assert similarity(np.zeros((1, 7), np.float32), A).tolist() == [[0.0] * 4]


@pytest.mark.parametrize("size", [1e38, 1e30, 1e-30, 1e-44])
def test_cosines_of_very_large_and_very_small_vectors_are_right(size: float):
    a = (A * size).clip(-3e38, 3e38)
    wide, one = a.astype(np.float64), A.astype(np.float64)
    expected = wide @ one.T / np.linalg.norm(wide, axis=1)[:, None] / np.linalg.norm(one, axis=1)
    assert np.allclose(similarity(wide, one), expected, rtol=0, atol=1e-12)
    assert np.allclose(similarity(a, A), expected, rtol=0, atol=1e-6)
    assert np.allclose(pairwise(a, A), np.diag(expected), rtol=0, atol=1e-6)
    assert np.allclose(similarity(one * 1e300, one), similarity(one, one), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["euclidean", "manhattan"])
def test_near_vectors_far_from_the_origin_keep_their_distance(name: str):
    rng = np.random.default_rng(0)
    near = (rng.standard_normal(384) * 10 + rng.standard_normal((5, 384)) * 0.00075).astype(np.float32)
    far = near[:, None].astype(np.float64) - near[None]
    true = np.sqrt((far**2).sum(-1)) if name == "euclidean" else np.abs(far).sum(-1)
    if name == "euclidean":
        assert true[0, 1:].min() > 0.018 and true[0, 1:].max() < 0.023
    found = -similarity(near, near, name)
    assert np.allclose(found, true, rtol=1e-5, atol=0) and (np.diag(found) == 0).all()


@pytest.mark.parametrize("name", NAMES)
def test_small_integers_and_half_floats_do_not_overflow(name: str):
    a = np.array([[120, 120, -90], [0, 100, 7]])
    expected = similarity(a.astype(np.float64), a.astype(np.float64), name)
    for kind in (np.int8, np.float16):
        assert np.allclose(similarity(a.astype(kind), a.astype(kind), name), expected, rtol=1e-6)


def test_tensors_and_what_is_no_list_of_vectors():
    assert np.array_equal(similarity(torch.from_numpy(A), torch.from_numpy(B)), similarity(A, B))  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"\(4, 3, 7\)"):
        similarity(np.zeros((4, 3, 7)), A)


def test_what_cannot_be_compared_is_refused():
    with pytest.raises(InputError, match="7 and 6 components"):
        similarity(A, B[:, :6])
    with pytest.raises(InputError, match="'jaccard'"):
        similarity(A, B, "jaccard")
