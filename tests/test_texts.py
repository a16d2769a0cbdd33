"""What a user may hand in."""

import numpy as np
import pytest

from afterword.errors import InputError
from afterword.layout import Layout
from afterword.texts import check_ids, check_texts, with_prompt, words_by_text


def test_strings_and_ids() -> None:
    assert check_texts(["a", [1, 2], (3,), np.array([4, 5])]) == ["a", [1, 2], [3], [4, 5]]
    assert check_texts(iter(["a"])) == ["a"]
    assert check_texts([]) == []


def test_a_bare_list_of_numbers_shows_the_right_call() -> None:
    with pytest.raises(InputError, match=r"\[\[1, 2, 3\]\]"):
        check_texts([1, 2, 3])


@pytest.mark.parametrize("texts", ["a", b"a", 3, None])
def test_what_is_no_list(texts) -> None:
    with pytest.raises(InputError, match="list of strings"):
        check_texts(texts)


@pytest.mark.parametrize("text", [None, 3.5, b"a", [1, "a"], [-1], "\0", "\udcff", [[1]], {}])
def test_a_text_that_cannot_be_used_is_named(text) -> None:
    with pytest.raises(InputError, match="text 1"):
        check_texts(["fine", text])


def test_ids_outside_the_vocabulary() -> None:
    with pytest.raises(InputError, match=r"text 1 holds token id 10.*ends at 9"):
        check_ids(["a", [3, 10]], 10)


def test_a_prompt_goes_in_front_and_is_no_template() -> None:
    assert with_prompt(Layout(), "") == Layout()
    assert with_prompt(Layout(), "{a}: ").parts == ["{a}: ", None]
    assert with_prompt(Layout("x{text}"), "p ").parts == ["p x", None]


def test_words_by_text() -> None:
    assert words_by_text("a", ["t"], single=True) == ([["a"]], False)
    assert words_by_text(["a", ("b", 1)], ["t"], single=True) == ([["a", ("b", 1)]], False)
    assert words_by_text(["a", ("b", 1)], ["t", "u"], single=False) == ([["a"], [("b", 1)]], True)
    assert words_by_text([["a"], []], ["t", "u"], single=False) == ([["a"], []], False)
    with pytest.raises(InputError):
        words_by_text("a", ["t", "u"], single=False)
