import numpy as np
import pytest
import torch

from afterword.errors import InputError, NotFitted
from afterword.post import Centre, Flow, RemoveMean, RemoveTop, Standardise, Unfitted, Whiten
from afterword.post.unfitted import blocks

X = torch.randn(20_000, 3, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("step", [Centre(), Whiten(2), RemoveTop(1), RemoveMean(), Standardise(), Flow()], ids=str)
def test_what_has_seen_nothing_is_refused_and_says_how_to_fit_it(step: Unfitted):
    with pytest.raises(NotFitted, match=r"has seen no vectors yet: encoder = encoder\.fit\(texts\)") as caught:
        step(X)
    assert str(caught.value).startswith(str(step)) and "\n" not in str(caught.value)


@pytest.mark.parametrize("given", [X, X.numpy(), [X[:1], X[1:]], iter([X.numpy()[:9000], X[9000:]])], ids=type)
def test_vectors_come_as_one_array_or_as_many(given):
    found = list(blocks(given))
    assert max(map(len, found)) == 8192
    assert torch.equal(torch.cat(found), X)


def test_a_memory_map_is_read_a_block_at_a_time(tmp_path):
    np.save(tmp_path / "x.npy", X.numpy())
    assert torch.equal(torch.cat(list(blocks(np.load(tmp_path / "x.npy", mmap_mode="r")))), X)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (X[0], r"shape \(3,\): give \(n, D\)"),
        ([X, X[:, :2]], r"shape \(20000, 2\): give \(n, 3\)"),
        ([X[:5], torch.tensor([[0.0, 1.0, 2.0], [0.0, torch.nan, 0.0]])], "vector 6 is not finite"),
    ],
)
def test_what_cannot_be_fitted_to_is_refused(given, words: str):
    with pytest.raises(InputError, match=words):
        list(blocks(given))
