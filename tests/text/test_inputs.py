"""What a user may hand in."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

from afterword.errors import InputError
from afterword.text.inputs import check_conditions, check_ids, check_texts, with_prompt, words_by_text
from afterword.text.layout import Layout


def test_strings_and_ids() -> None:
    assert check_texts(["a", [1, 2], (3,), np.array([4, 5])]) == ["a", [1, 2], [3], [4, 5]]
    assert check_texts(iter(["a"])) == ["a"]
    assert check_texts([]) == []


@pytest.mark.parametrize(
    "texts",
    [
        pd.Series(["a", "b"], index=[7, 3]),
        pd.Series(["a", "b"], dtype="category"),
        pd.DataFrame({"t": ["a", "b"]})["t"],
        pa.array(["a", "b"]),
        pa.chunked_array([["a"], ["b"]]),
        list(pa.array(["a", "b"])),
        np.array(["a", "b"]),
        [np.str_("a"), np.str_("b")],
        (t for t in "ab"),
        dict.fromkeys("ab").keys(),
    ],
    ids=lambda texts: type(texts).__name__,
)
def test_columns_of_every_library(texts) -> None:
    assert check_texts(texts) == ["a", "b"]


@pytest.mark.parametrize(
    ("texts", "fix"),
    [
        (pd.DataFrame({"text": ["a"], "label": [1]}), r"DataFrame with the columns text, label: .*df\['text'\]"),
        (pa.table({"text": ["a"]}), r"Table with the columns text: .*df\['text'\]"),
        ({"text": ["a"]}, "dict with the keys text: give one of its values"),
        ({"a", "b"}, "set, which has no order: .*sorted"),
        (pd.Series(["a", None]), "text 1 is a (NoneType|float)"),
        (torch.tensor([1, 2]), r"\[\[1, 2\]\]"),
        ([[True]], "text 0"),
    ],
    ids="DataFrame table dict set missing tensor bool".split(),  # a set's own spelling varies
)
def test_what_would_be_read_as_something_else_is_refused_with_the_fix(texts, fix) -> None:
    with pytest.raises(InputError, match=fix) as error:
        check_texts(texts)
    assert "\n" not in str(error.value)


def test_conditions() -> None:
    assert check_conditions(None) is None
    for given in (["x", "y"], pd.Series(["x", "y"]), pa.array(["x", "y"]), np.array(["x", "y"])):
        assert check_conditions(given) == ["x", "y"]


@pytest.mark.parametrize(
    ("conditions", "words"),
    [
        ([None], "condition 0 is a NoneType.*give a string"),
        (["a", "b\0"], "condition 1 holds a NUL"),
        (["\ud800"], "condition 0 holds a lone surrogate"),
        ([[1, 2]], "condition 0 is a list, .*give a string"),
        ("xy", "one condition per text"),
        ({"x"}, "no order"),
    ],
)
def test_a_condition_that_cannot_be_used(conditions, words) -> None:
    with pytest.raises(InputError, match=words):
        check_conditions(conditions)


@pytest.mark.parametrize(
    ("prompt", "words"),
    [("a\0", "NUL"), ("\udcff", "surrogate"), (3, "give a string$"), (["a"], "the prompt is a list")],
)
def test_a_prompt_that_cannot_be_used(prompt, words) -> None:
    with pytest.raises(InputError, match=words):
        with_prompt(Layout(), prompt)


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
    assert with_prompt(Layout(), "{a}: ").parts == ("{a}: ", None)
    assert with_prompt(Layout("x{text}"), "p ").parts == ("p x", None)


def test_words_by_text() -> None:
    assert words_by_text("a", ["t"], single=True) == ([["a"]], False)
    assert words_by_text(["a", ("b", 1)], ["t"], single=True) == ([["a", ("b", 1)]], False)
    assert words_by_text(["a", ("b", 1)], ["t", "u"], single=False) == ([["a"], [("b", 1)]], True)
    assert words_by_text([["a"], []], ["t", "u"], single=False) == ([["a"], []], False)
    for given in ("a", ("b", 1), {"a", "b"}, 3):
        with pytest.raises(InputError):
            words_by_text(given, ["t", "u"], single=False)
    assert words_by_text(("b", 1), ["t"], single=True) == ([[("b", 1)]], False)


@pytest.mark.parametrize("column", [np.array, pd.Series, pa.array])
def test_words_in_columns(column) -> None:
    assert words_by_text(column(["a", "b"]), ["t", "u"], single=False) == ([["a"], ["b"]], True)
    assert words_by_text(column(["a", "b"]), ["t"], single=True) == ([["a", "b"]], False)
    assert words_by_text([column(["a", "b"]), ["c"]], ["t", "u"], single=False) == ([["a", "b"], ["c"]], False)
