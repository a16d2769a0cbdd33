"""Lengths: the tokens that the model would read, counted by the tokenizer alone."""

from pathlib import Path

import pytest

from afterword import Encoder, classical, echo
from afterword.errors import InputError
from afterword.papers.lengths import lengths

TEXTS = ["a", "a thin line", "the line is long"]


def test_lengths_are_those_of_the_batch(bert: Path):
    for method in (classical(), echo(copies=3)):
        encoder = Encoder.load(bert, method)
        found = lengths(encoder.backbone.tokenizer, TEXTS, method.layout, limit=4, name="mine")
        assert found.tokens.tolist() == [len(encoder.weights(text)[0]) for text in TEXTS]
        assert found.over == sum(n > 4 for n in found.tokens) > 0
        told = found.to_json()
        assert told["texts"] == 3 and told["over"] == found.over and told["name"] == "mine"
        assert told["quantiles"]["1.0"] == max(found.tokens) and told["quantiles"]["0.5"] == sorted(found.tokens)[1]


def test_without_a_limit_nothing_is_over_it_and_no_text_is_refused(bert: Path):
    tokenizer = Encoder.load(bert, classical()).backbone.tokenizer
    assert lengths(tokenizer, TEXTS).over == 0
    with pytest.raises(InputError, match="there is no text"):
        lengths(tokenizer, [])


@pytest.fixture(scope="module")
def bert(oracle: Path) -> Path:
    return oracle / "models" / "bert"
