"""Words in their texts."""

import pytest
from tests.tiny import tiny, tiny_tokenizer

from afterword import Encoder, classical, echo, reba
from afterword.backbone.loading import load_backbone
from afterword.errors import InputError, WordNotFound
from afterword.text.layout import Layout
from afterword.text.tokenizer import Tokenizer
from afterword.text.words import find_tokens, span_of


@pytest.fixture(scope="module")
def own() -> Tokenizer:
    return Tokenizer(tiny_tokenizer("llama"))


@pytest.fixture(scope="module")
def backbone(tmp_path_factory: pytest.TempPathFactory):
    return load_backbone(tiny("llama", tmp_path_factory.mktemp("words")))


def test_a_string_an_occurrence_a_span() -> None:
    text = "bank by bank"
    assert span_of("bank", text) == span_of(("bank", 0), text) == (0, 4)
    assert span_of(("bank", 1), text) == span_of(("bank", -1), text) == span_of((8, 12), text) == (8, 12)


@pytest.mark.parametrize("word", [("bank", 2), "bench", (3, 3), (5, 99), (-1, 2)])
def test_a_word_that_is_not_there(word) -> None:
    with pytest.raises(WordNotFound):
        span_of(word, "bank by bank")


@pytest.mark.parametrize("word", ["", 3, None, ("a",), ("a", "b"), (None, 1)])
def test_what_is_no_word(word) -> None:
    with pytest.raises(InputError):
        span_of(word, "bank by bank")


def test_a_word_in_ids_is_a_span_of_tokens() -> None:
    assert span_of((1, 3), [5, 6, 7]) == (1, 3)
    with pytest.raises(InputError, match="span of tokens"):
        span_of("a", [5, 6, 7])


def test_a_word_that_was_cut_off_is_said(own: Tokenizer) -> None:
    writings = Layout().write(["a river bank"], own, 8, offsets=True)
    with pytest.raises(WordNotFound, match="cut off"):
        find_tokens([["bank"]], ["a river bank"], writings, 1)


def test_which_copy_is_read(backbone) -> None:
    """Classical words stand in the first copy, Echo's in the last; both are the states there."""
    text = "a bank"
    n = len(Layout().write([text], backbone.tokenizer)[0].segments[0].ids) - len(backbone.tokenizer.prefix)
    first = Encoder(backbone, classical()).encode_words(text, ["bank"])
    last = Encoder(backbone, echo()).encode_words(text, ["bank"])
    twice = Encoder(backbone, classical()).encode_words([backbone.tokenizer.ids([text])[0] * 2], [(n + 2, 2 * n)])
    assert abs(first - last).max() > 1e-3
    assert abs(last - twice).max() < 1e-5


def test_the_message_names_text_and_word(backbone) -> None:
    with pytest.raises(WordNotFound, match=r"'bench'.*text 1"):
        Encoder(backbone, reba()).encode_words(["a bench", "a bank"], ["bench", "bench"])
