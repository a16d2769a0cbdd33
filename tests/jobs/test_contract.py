from pathlib import Path

import pytest

from afterword.errors import DataError
from afterword.jobs.contract import check_same, first_difference, plain


def test_the_first_difference_is_named_by_its_path():
    before = {"a": 1, "b": {"c": [1], "d": None}}
    assert first_difference(before, {"a": 1, "b": {"c": [1], "d": None}}) is None
    assert first_difference(before, {"a": 1, "b": {"c": [1, 2], "d": 3}}) == ("b c", [1], [1, 2])
    assert first_difference(before, {"a": 1}) == ("b", {"c": [1], "d": None}, None)
    assert first_difference({}, {"x": 1}) == ("x", None, 1)


def test_what_was_written_is_compared_as_it_is_read():
    check_same(Path("a"), plain({"--method": ("x", "y")}), plain({"--method": ["x", "y"]}))


@pytest.mark.parametrize(
    ("before", "now", "told"),
    [
        (None, "x", "--prompt not given, and now it is x"),
        ([], ["echo"], '--prompt not given, and now it is ["echo"]'),
        (True, False, "--prompt true, and now it is false"),
        (3, None, "--prompt 3, and now it is not given"),
    ],
)
def test_a_difference_is_said_in_one_line(before: object, now: object, told: str):
    with pytest.raises(DataError, match="was begun with ") as e:
        check_same(Path("a.parts"), {"--prompt": before}, {"--prompt": now})
    assert str(e.value) == f"a.parts was begun with {told}: give the same command, or --overwrite to start anew"
