"""Heads in both numberings."""

import pytest

from afterword.errors import MethodError
from afterword.methods import parse_head


@pytest.mark.parametrize(
    ("head", "expected"), [("1-10", (0, 9)), ("12-1", (11, 0)), ((0, 9), (0, 9)), ([2, 3], (2, 3))]
)
def test_heads_in_both_numberings(head, expected) -> None:
    assert parse_head(head) == expected


@pytest.mark.parametrize(
    "head", ["0-9", "1-0", "10", "a-b", "1--2", "-1-2", "²-1", (0,), (0, -1), (True, 1), ("1", "2")]
)
def test_what_is_no_head(head) -> None:
    with pytest.raises(MethodError, match="head="):
        parse_head(head)
