import numpy as np
import pytest
import torch

from afterword.errors import InputError
from afterword.similarity import similarity

A, B = (np.random.default_rng(i).standard_normal((n, 7)).astype(np.float32) for i, n in enumerate((4, 3)))
NAMES = ["cosine", "dot", "euclidean", "manhattan"]


@pytest.mark.parametrize("name", NAMES)
def test_it_is_what_sentence_transformers_computes(name: str):
    library = pytest.importorskip("sentence_transformers", reason="the extra st is not installed")
    theirs = library.SimilarityFunction.to_similarity_fn(name)(torch.from_numpy(A), torch.from_numpy(B))
    assert np.allclose(similarity(A, B, name), theirs.numpy(), atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_a_vector_is_nothing_more_similar_to_than_to_itself(name: str):
    unit = A / np.linalg.norm(A, axis=1, keepdims=True)
    found = similarity(unit, unit, name)
    assert found.shape == (4, 4) and (found.argmax(1) == range(4)).all()
    assert similarity(unit[0], unit, name).shape == (1, 4)


def test_a_zero_vector_is_similar_to_nothing():
    assert similarity(np.zeros((1, 7), np.float32), A).tolist() == [[0.0] * 4]


def test_what_cannot_be_compared_is_refused():
    with pytest.raises(InputError, match="7 and 6 components"):
        similarity(A, B[:, :6])
    with pytest.raises(InputError, match="'jaccard': choose cosine"):
        similarity(A, B, "jaccard")
