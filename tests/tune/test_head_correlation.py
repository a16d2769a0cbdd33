"""Heads without labels: correlations with tf-idf as worked out by hand, and over each text by numpy."""

import math

import numpy as np
import pytest
from tests.tiny import tiny

from afterword import Encoder, classical, ditto
from afterword.encode.limits import Limits
from afterword.errors import AttentionNotSeen, InputError
from afterword.tune.heads import label_free

TEXTS = ["a cat sat", "the dog ran off", "aaa", "b", "in the end the cat sat on the dog", "ab"]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return Encoder.load(tiny("bert", tmp_path_factory.mktemp("bert")), classical(), dtype="float64")


def test_every_head_against_each_text_by_itself(encoder):
    tokenizer = encoder.backbone.tokenizer
    ids = tokenizer.ids(TEXTS)
    inverse = {t: math.log((len(TEXTS) + 1) / (sum(t in text for text in ids) + 1)) for text in ids for t in text}
    heads = label_free(encoder, TEXTS, Limits(512, batch_tokens=20))
    for head in ((0, 0), (1, 3), (2, 2)):
        by_text = []
        for text, tokens in zip(TEXTS, ids, strict=True):
            diagonal = Encoder(encoder.backbone, ditto(head)).weights(text)[1][1:-1]
            tfidf = np.array([tokens.count(t) * inverse[t] for t in tokens])
            if np.ptp(tfidf) > 0:
                by_text.append(np.corrcoef(diagonal, tfidf)[0, 1])
        assert len(by_text) == 4  # of "aaa" and "b" every token weighs the same
        assert heads.correlation[head] == pytest.approx(np.mean(by_text), abs=1e-6)


def test_texts_that_tell_nothing(encoder, tmp_path):
    with pytest.raises(InputError, match="1 texts have no tf-idf"):
        label_free(encoder, ["one"])
    with pytest.raises(InputError, match="holds no token"):
        label_free(encoder, ["one", ""])
    mamba = Encoder.load(tiny("mamba", tmp_path), classical())
    with pytest.raises(AttentionNotSeen):
        label_free(mamba, TEXTS)
