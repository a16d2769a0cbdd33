import pytest
from tests.tiny import tiny_tokenizer

from afterword.errors import InputError, MethodError
from afterword.text.layout import Layout
from afterword.text.placeholder import PLACEHOLDER, Placeholder, placed, with_placeholders
from afterword.text.tokenizer import Tokenizer

LAYOUT = Layout('This : <PST> "{text}" is')


def test_a_literal_is_parted_at_placeholders():
    tokenizer = Tokenizer(tiny_tokenizer())
    parts = with_placeholders(["<PST> a <PST>", None, "b"], tokenizer)
    assert parts == ["*", " a ", "*", None, "b"]
    assert [isinstance(p, Placeholder) for p in parts] == [True, False, True, False, False]
    assert with_placeholders(["* a", None], tokenizer) == ["* a", None]
    assert Layout("<PST> {text} <PST>").slots == 2 and Layout("{text}").slots == 0 == Layout().slots


def test_what_a_condition_or_a_text_says_is_no_placeholder():
    (segment,) = (
        Layout("{condition}: {text}").write(["<PST>"], Tokenizer(tiny_tokenizer()), conditions=["<PST>"])[0].segments
    )
    assert segment.slots == ()


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_its_token_is_found_wherever_it_stands(kind: str):
    tokenizer = Tokenizer(tiny_tokenizer(kind))
    for text in ("* a *", "", [60, 61]):
        (segment,) = LAYOUT.write([text], tokenizer)[0].segments
        assert tokenizer.tokens([segment.ids[s] for s in segment.slots]) == ["*"]
        assert segment.slots == (len(tokenizer.prefix) + len("This : "),), "one token for each byte but the last blank"


def test_a_tokenizers_own_placeholder_is_used():
    own = tiny_tokenizer("llama")
    own.add_tokens([PLACEHOLDER])
    (segment,) = LAYOUT.write(["a"], Tokenizer(own))[0].segments
    assert own.convert_ids_to_tokens([segment.ids[s] for s in segment.slots]) == [PLACEHOLDER]


def test_what_has_no_token_of_its_own_or_is_cut_off_is_refused():
    assert placed([(2, 4)], [(4, 9)], 20) == (3,)
    with pytest.raises(MethodError, match="write a blank between it and"):
        placed([(3, 5)], [(4, 9)], 20)
    with pytest.raises(MethodError, match="no token of its own"):
        placed([(0, 0)], [(4, 9)], 20)
    tokenizer = Tokenizer(tiny_tokenizer("llama"))
    with pytest.raises(InputError, match="<PST> was cut off"):
        Layout("{text} <PST>", truncate="whole").write(["a long text"], tokenizer, 8)
    (kept,) = Layout("{text} <PST>").write(["a long text"], tokenizer, 8)[0].segments
    assert kept.slots == (len(kept.ids) - 1,), "the text is cut, not the template"
