"""The texts that `similar` compares: each once, none lost, too many refused."""

from pathlib import Path

import numpy as np
import pytest

from afterword import Encoder, classical
from afterword.cli.inputs import open_reader
from afterword.cli.similar_texts import embed_side, read_items
from afterword.jobs.recipe import MethodsEmbedder


@pytest.fixture(scope="module")
def embedder(gpt2: Path) -> MethodsEmbedder:
    return MethodsEmbedder(Encoder.load(gpt2, classical()), {"vector": classical()})


def test_every_row_is_a_text_or_is_named(embedder: MethodsEmbedder):
    items = read_items(open_reader(["dog", " ", "cat", "dog", "a\0b"], None, None, None))
    side = embed_side(items, embedder, False)
    assert (side.texts, side.lines, side.repeated) == (["dog", "cat"], [[1, 4], [2 + 1]], 1)
    assert [line for line, _ in side.rejected] == [2, 5]
    assert np.array_equal(side.vectors["vector"], embedder(["dog", "cat"])["vector"])


def test_a_text_that_only_the_model_refuses_is_refused_wherever_it_stands(gpt2: Path):
    encoder = Encoder.load(gpt2, classical(), max_length=4)
    strict = MethodsEmbedder(encoder, {"vector": classical()}, {"on_long": "error"})
    items = read_items(open_reader(["dog", "word " * 50, "cat", "word " * 50], None, None, None))
    side = embed_side(items, strict, False)
    assert side.texts == ["dog", "cat"] and [line for line, _ in side.rejected] == [2, 4]
