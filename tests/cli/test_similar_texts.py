"""The texts that `similar` compares: each once, none lost, too many refused."""

from pathlib import Path

import numpy as np
import pytest
import typer

from afterword import Encoder, classical
from afterword.cli.inputs import open_reader
from afterword.cli.similar_texts import MOST, embed_side, read_items, reasons, summary
from afterword.jobs.embedder import MethodsEmbedder


@pytest.fixture(scope="module")
def embedder(gpt2: Path) -> MethodsEmbedder:
    return MethodsEmbedder(Encoder.load(gpt2, classical()), {"vector": classical()})


def test_every_row_is_a_text_or_is_named(embedder: MethodsEmbedder):
    items = read_items(open_reader(["dog", " ", "cat", "dog", "a\0b"], None, None, None))
    side = embed_side(items, embedder, False)
    assert (side.texts, side.lines, side.repeated) == (["dog", "cat"], [[1, 4], [2 + 1]], 1)
    assert [line for line, _ in side.rejected] == [2, 5]
    assert np.array_equal(side.vectors["vector"], embedder(["dog", "cat"])["vector"])
    equal, rejected = summary(side, Path("t.txt"))
    assert equal == "equal texts: 1 of 5 rows of t.txt repeat an earlier one"
    assert rejected.startswith("rejected: 2 of 5 rows of t.txt: line 2: is blank; line 5: ")


def test_a_text_that_only_the_model_refuses_is_refused_wherever_it_stands(gpt2: Path):
    encoder = Encoder.load(gpt2, classical(), max_length=4)
    strict = MethodsEmbedder(encoder, {"vector": classical()}, {"on_long": "error"})
    items = read_items(open_reader(["dog", "word " * 50, "cat", "word " * 50], None, None, None))
    side = embed_side(items, strict, False)
    assert side.texts == ["dog", "cat"] and [line for line, _ in side.rejected] == [2, 4]


def test_too_many_texts_are_refused_with_what_to_do():
    with pytest.raises(typer.BadParameter, match=r"more than 10,000 texts: write their vectors with `afterword embed"):
        read_items(open_reader(["x"] * (MOST + 1), None, None, None))


def test_reasons_of_nothing():
    assert reasons([]) == "there is none"
