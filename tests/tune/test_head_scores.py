"""The score of every head is that of the encoder with that head."""

import numpy as np
import pytest
from tests.tiny import tiny

from afterword import Encoder, classical, ditto
from afterword.errors import AttentionNotSeen, InputError, MethodError
from afterword.tasks.pairs import ScoredPairs
from afterword.tune import score
from afterword.tune.head_scores import head_scores

LEFT = ("a cat sat", "the dog ran off", "aaa", "b", "in the end", "the cat sat on the dog")
PAIRS = ScoredPairs(LEFT, (*LEFT[2:], "off", "on"), np.array([1.0, 4, 2, 2, 5, 3]), ())


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return Encoder.load(tiny("bert", tmp_path_factory.mktemp("bert")), classical(), dtype="float64")


@pytest.mark.parametrize("states", ["first_last", "last", "static"])
def test_every_head(encoder, states):
    found = head_scores(encoder, PAIRS, states)
    assert found.shape == (3, 4) and len(np.unique(found)) > 1
    for head in np.ndindex(found.shape):
        assert found[head] == pytest.approx(score(Encoder(encoder.backbone, ditto(head, states)), PAIRS), abs=1e-9)


def test_what_cannot_be_scored(encoder, tmp_path):
    flat = ScoredPairs(PAIRS.left, PAIRS.right, np.full(6, 3.0), ())
    with pytest.raises(InputError, match="all 6 pairs have the score 3"):
        head_scores(encoder, flat)
    with pytest.raises(MethodError, match="layer:9"):
        head_scores(encoder, PAIRS, "layer:9")
    with pytest.raises(AttentionNotSeen):
        head_scores(Encoder.load(tiny("mamba", tmp_path), classical()), PAIRS)
