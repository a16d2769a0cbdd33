"""Ids and offsets as the tokenizer's own, and no state shared with another library."""

import pytest
from tests.tiny import tiny_tokenizer

from afterword.errors import InputError, ModelError, NoMaskToken
from afterword.tokens import Tokenizer, check_text


@pytest.fixture(params=["llama", "bert"])
def hf(request: pytest.FixtureRequest):
    return tiny_tokenizer(request.param)


def test_prefix_and_suffix_are_what_it_puts_around(hf) -> None:
    own = Tokenizer(hf)
    assert own.prefix + own.ids(["a b"])[0] + own.suffix == hf("a b")["input_ids"]
    assert own.prefix + own.suffix


def test_spelling_equals_ids(hf) -> None:
    own, texts = Tokenizer(hf), ["a b", "日本", "", " x"]
    assert [s.ids for s in own.spell(texts)] == own.ids(texts)
    assert own.spell(["ab"])[0].offsets == [(0, 1), (1, 2)]


def test_another_librarys_padding_does_not_reach_us(hf) -> None:
    own = Tokenizer(hf)
    before = own.ids(["a", "a longer text"])
    hf(["a", "a longer text"], padding=True, truncation=True, max_length=4)
    hf.backend_tokenizer.enable_padding(length=50)
    assert own.ids(["a", "a longer text"]) == before


def test_no_mask_token_is_said(hf) -> None:
    hf.mask_token = None
    with pytest.raises(NoMaskToken, match="no mask token"):
        _ = Tokenizer(hf).mask_id


@pytest.mark.parametrize(("text", "words"), [(3, "int"), ("a\0b", "NUL"), ("\ud800", "surrogate"), (None, "NoneType")])
def test_a_text_that_cannot_be_tokenized(text, words) -> None:
    with pytest.raises(InputError, match=words):
        check_text(text, "text 7")


def test_a_slow_tokenizer_has_no_offsets() -> None:
    class Slow:
        model_max_length, mask_token_id = 10, None

        def __call__(self, text: str, add_special_tokens: bool) -> dict:
            return {"input_ids": [*([1] if add_special_tokens else []), *map(ord, text)]}

    own = Tokenizer(Slow())
    assert own.ids(["ab"]) == [[97, 98]]
    assert own.prefix == [1]
    with pytest.raises(ModelError, match="character offsets"):
        own.spell(["ab"])
