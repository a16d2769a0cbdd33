"""How texts are written, worked out by hand on a byte tokenizer."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.tiny import tiny_tokenizer

from afterword.errors import InputError, MethodError
from afterword.text.inputs import with_prompt
from afterword.text.layout import Layout, punctuated
from afterword.text.tokenizer import Tokenizer
from afterword.text.writer import PLACEHOLDER, placed


@pytest.fixture(scope="module")
def own() -> Tokenizer:
    return Tokenizer(tiny_tokenizer("bert"))


def spelled(own: Tokenizer, layout: Layout, text, max_length=None, **options) -> str:
    """The writing as a string; special tokens as < and >, copies in brackets."""
    (writing,) = layout.write([text], own, max_length, **options)
    out = []
    for segment in writing.segments:
        front, behind = segment.special
        body = own.hf.convert_ids_to_tokens(segment.ids)
        marks = {i: "[" for i, _ in segment.copies}
        line = ["<"] * front + body[front : len(body) - behind] + [">"] * behind
        for start, end in reversed(segment.copies):
            line[start:end] = ["[", *line[start:end], "]"]
        assert marks
        out.append("".join(line).replace("Ġ", " "))
    return " | ".join(out)


def test_copies_share_one_pair_of_special_tokens(own) -> None:
    assert spelled(own, Layout(copies=3), "ab") == "<[ab][ab][ab]>"
    assert spelled(own, Layout(copies=2, add_special_tokens=False), "ab") == "[ab][ab]"
    assert spelled(own, Layout(copies=2, separator=";"), "ab") == "<[ab];[ab]>"


@pytest.mark.parametrize("text", ["ht", "h", "hat", "th", " t", "a"])
@pytest.mark.parametrize("prompt", ["q: ", "t", "xt", "{a}"])
def test_behind_a_prompt_the_copies_repeat_the_ids_of_one_copy(own, prompt: str, text: str) -> None:
    (one,) = with_prompt(Layout(), prompt).write([text], own)
    start, end = one.segments[0].copies[0]
    ids = one.segments[0].ids
    assert own.prefix + own.ids([prompt + text])[0] + own.suffix == ids  # as sentence-transformers writes it
    for layout in (Layout(copies=3), Layout(copies=3, join="ids"), Layout(copies=3, separator="tt")):
        (many,) = with_prompt(layout, prompt).write([text], own, offsets=True)
        between = own.ids([layout.separator])[0]
        copies = [*ids[start:end], *[*between, *ids[start:end]] * 2]
        assert many.segments[0].ids == [*ids[:start], *copies, *ids[end:]]
        assert [many.segments[0].ids[a:b] for a, b in many.segments[0].copies] == [ids[start:end]] * 3
        assert len(set(many.offsets)) == 1 and many.offsets[0][-1][1] == len(text)


def test_behind_a_prompt_the_text_is_cut_never_the_prompt(own) -> None:
    layout = with_prompt(Layout(copies=2), "q:")
    assert spelled(own, layout, "abcdef", 11) == "<q:[abc][abc]>"
    assert spelled(own, with_prompt(Layout(copies=2, truncate="after"), "q:"), "abcd", 9) == "<q:[abcd][a]>"
    assert spelled(own, layout, own.ids(["ab"])[0]) == "<q:[ab][ab]>"
    with pytest.raises(InputError, match="max_length=5"):
        spelled(own, layout, "ab", 5)
    with pytest.raises(MethodError, match="chunk=2"):
        with_prompt(Layout(copies=2, chunk=2), "q:")


PLAN = st.sampled_from([None, "q: {text}", "{text}y", "t{text}", "In {text} and {text}z", "{condition}: {text}!"])


@given(
    texts=st.lists(st.text("th in\u4e16[MASK]", max_size=9), min_size=1, max_size=6),
    template=PLAN,
    options=st.sampled_from([{}, {"copies": 2}, {"truncate": "after"}, {"join": "ids"}, {"truncate": "whole"}]),
    length=st.sampled_from([None, 12, 16]),
)
def test_texts_are_written_together_as_each_alone(own, texts, template, options: dict, length) -> None:
    """Tokenizing all strings in one batch changes nothing, those that are too long and are cut included."""
    layout = Layout(template, **options)
    conditions = [f"c{i % 2}" for i in range(len(texts))] if "condition" in layout.fields else [None] * len(texts)

    def written(some: list, theirs: list) -> list:
        return layout.write(some, own, length, conditions=None if None in theirs else theirs, offsets=True)

    alone = []
    for text, condition in zip(texts, conditions, strict=True):
        try:
            alone += written([text], [condition])
        except InputError:
            with pytest.raises(InputError):
                written(texts, conditions)
            return
    assert written(texts, conditions) == alone


def test_a_template_is_written_around(own) -> None:
    assert spelled(own, Layout("x{text}y{{}}"), "ab") == "<x[ab]y{}>"
    assert spelled(own, Layout("x{text}y{text}", join="ids"), "ab") == "<x[ab]y[ab]>"
    assert spelled(own, Layout("x{text}", copies=2, separator="-"), "ab") == "<x[ab]-[ab]>"
    assert spelled(own, Layout("{condition}:{text}"), "ab", conditions=["c{d}"]) == "<c{d}:[ab]>"


def test_the_text_is_cut_never_the_template(own) -> None:
    assert spelled(own, Layout("xx{text}yy"), "abcdef", 9) == "<xx[abc]yy>"
    assert spelled(own, Layout("xx{text}yy", join="ids"), "abcdef", 9) == "<xx[abc]yy>"
    assert spelled(own, Layout("x{text}y{text}"), "abcdef", 9) == "<x[ab]y[ab]>"
    with pytest.raises(InputError, match="max_length=5"):
        spelled(own, Layout("xxxx{text}yy"), "abc", 5)


def test_truncation_before_after_and_of_the_whole(own) -> None:
    assert spelled(own, Layout(copies=2), "abcd", 8) == "<[abc][abc]>"
    (writing,) = Layout(copies=2).write(["abcdef"], own, 8)
    assert (writing.kept, writing.total) == (3, 6)
    assert spelled(own, Layout(copies=2, truncate="after"), "abcd", 8) == "<[abcd][ab]>"
    assert spelled(own, Layout(copies=2, truncate="whole"), "abcd", 8) == "<[abcd][abc]"
    assert spelled(own, Layout(copies=2, join="text", truncate="after"), "abcd", 8) == "<[abcd][ab]>"
    assert spelled(own, Layout(copies=2, join="text", truncate="whole"), "abcd", 8) == "<[abcd][abc]"


def test_chunks_follow_the_full_pass(own) -> None:
    assert spelled(own, Layout(copies=2, chunk=2), "abcde") == "<[abcde]> | <[ab][ab]> | <[cd][cd]> | <[e][e]>"
    (writing,) = Layout(copies=2, chunk=2).write(["abcde"], own)
    assert [s.first for s in writing.segments[1:]] == [0, 2, 4]
    assert [s.final for s in writing.segments[1:]] == [False, False, True]
    assert sum(s.part for s in writing.segments[1:]) == pytest.approx(1)


@pytest.mark.parametrize(
    ("text", "stop", "everything"),
    [
        ("", "", ""),
        ("ab", "ab.", "ab."),
        ("ab.", "ab.", "ab."),
        ("ab?", "ab?", "ab."),
        ('a "b"', 'a "b"', "a 'b'"),
        ('a "b"?', 'a "b"?', "a 'b'."),
        ("ab!", "ab!.", "ab!."),
    ],
)
def test_punctuation_of_the_authors(text: str, stop: str, everything: str) -> None:
    assert (punctuated(text, "stop"), punctuated(text, "all")) == (stop, everything)


@pytest.mark.parametrize(
    ("options", "value"),
    [
        ({"copies": 0}, "copies=0"),
        ({"template": "no place"}, "'no place'"),
        ({"template": "{text} {name}"}, "{name}"),
        ({"template": "{text} {"}, "'{text} {'"),
        ({"template": "{text}{text}", "copies": 3}, "copies=3"),
        ({"chunk": 2, "template": "x{text}"}, "chunk=2"),
        ({"truncate": "middle"}, "truncate='middle'"),
        ({"join": "string"}, "join='string'"),
    ],
)
def test_a_layout_that_cannot_be(options: dict, value: str) -> None:
    with pytest.raises(MethodError, match=re.escape(value)):
        _ = Layout(**options)


def prefixes(template: str, texts: list, max_length: int | None = None, kind: str = "llama", **options) -> list[str]:
    """What each text shares with others, as tokens."""
    tokenizer = Tokenizer(tiny_tokenizer(kind))
    given = {name: options.pop(name) for name in ("conditions",) if name in options}
    writings = Layout(template, **options).write(texts, tokenizer, max_length, **given)
    segments = [w.segments[0] for w in writings]
    return [" ".join(tokenizer.tokens(s.ids[: s.prefix])).replace("Ġ", "_") for s in segments]


def test_a_lead_ends_before_what_the_text_may_change() -> None:
    assert prefixes("xt{text}y", ["ab", "hab", ""]) == ["<s> x t", "", "<s> x t"]  # "th" is one token
    assert prefixes("x {text}", ["ab", "tab"]) == ["<s> x _", ""]  # "_t" too
    assert prefixes("x{text}", ["ab", [20, 21]]) == ["<s> x", "<s> x"]
    assert prefixes("x{text}", ["ab"], kind="gpt2") == ["x"]
    assert prefixes("x{text}", ["ab"], add_special_tokens=False) == ["x"]
    assert prefixes("x{text}y{text}", ["ab"], join="ids") == ["<s> x"]


def test_without_a_template_and_without_a_text_there_is_no_lead() -> None:
    assert prefixes("{text}y", ["ab"]) == [""]
    assert prefixes("xxxx{text}", ["ab", "c"], 5, truncate="after") == ["", ""]
    assert prefixes("xxxx{text}", ["ab", "c"], 6, truncate="after") == ["<s> x x x x"] * 2


def test_what_a_condition_or_a_text_says_is_no_placeholder():
    (segment,) = (
        Layout("{condition}: {text}").write(["<PST>"], Tokenizer(tiny_tokenizer()), conditions=["<PST>"])[0].segments
    )
    assert segment.slots == ()


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_its_token_is_found_wherever_it_stands(kind: str):
    tokenizer = Tokenizer(tiny_tokenizer(kind))
    for text in ("* a *", "", [60, 61]):
        (segment,) = Layout('This : <PST> "{text}" is').write([text], tokenizer)[0].segments
        assert tokenizer.tokens([segment.ids[s] for s in segment.slots]) == ["*"]
        assert segment.slots == (len(tokenizer.prefix) + len("This : "),), "one token for each byte but the last blank"


def test_a_tokenizers_own_placeholder_is_used():
    own = tiny_tokenizer("llama")
    own.add_tokens([PLACEHOLDER])
    (segment,) = Layout('This : <PST> "{text}" is').write(["a"], Tokenizer(own))[0].segments
    assert own.convert_ids_to_tokens([segment.ids[s] for s in segment.slots]) == [PLACEHOLDER]


def test_what_has_no_token_of_its_own_or_is_cut_off_is_refused():
    tokenizer = Tokenizer(tiny_tokenizer("llama"))
    assert placed([(2, 4)], [(4, 9)], 20) == (3,)
    with pytest.raises(MethodError, match="<PST>"):
        placed([(3, 5)], [(4, 9)], 20)
    with pytest.raises(InputError, match="<PST>"):
        Layout("{text} <PST>", truncate="whole").write(["a long text"], tokenizer, 8)
    (kept,) = Layout("{text} <PST>").write(["a long text"], tokenizer, 8)[0].segments
    assert kept.slots == (len(kept.ids) - 1,), "the text is cut, not the template"
