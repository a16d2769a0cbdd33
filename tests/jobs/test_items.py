import pytest

from afterword.jobs.rows import Item, fault, kept_columns, unwritable


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("fine", None),
        ("", "is empty"),
        (" \n", "is blank"),
        (None, "is null"),
        (5, "is not a string but a number"),
        ([1], "is not a string but an array"),
        ({"a": 1}, "is not a string but an object"),
    ],
)
def test_why_a_value_is_no_text(value: object, why: str | None) -> None:
    assert fault(value) == why


def test_half_a_pair_of_surrogates_is_no_text() -> None:
    assert "surrogate" in str(fault("a \ud800 b"))


def test_what_cannot_be_written() -> None:
    assert unwritable({"\ud800": 1}) == unwritable([("a", "\udfff")]) == "holds a lone surrogate"
    assert [unwritable(value) for value in (None, 1.5, "每", {"a": b"\xff"}, "\ud7ff\ue000")] == [None] * 5


def test_kept_values_have_the_form_of_the_output() -> None:
    items = [
        Item(1, "a", kept={"x": [1, 2.5], "y": 3}),
        Item(2, "b", kept={"x": "s", "y": float("inf")}),
        Item(3, None),
    ]
    kinds = {"x": "json", "y": object()}
    assert kept_columns(items, kinds, parquet=True) == {"x": ["[1, 2.5]", "s", None], "y": [3, float("inf"), None]}
    assert kept_columns(items, kinds, parquet=False) == {"x": [[1, 2.5], "s", None], "y": [3, None, None]}
