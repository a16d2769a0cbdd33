import pytest

from afterword.jobs.items import fault


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
