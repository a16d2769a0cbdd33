import json
from pathlib import Path

import pytest

from afterword.errors import DataError
from afterword.jobs.contract import check_same, first_difference, plain, read, read_marker


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


@pytest.mark.parametrize("content", [None, "", "[]", "null", '{"a"', "[" * 100_000, '{"a": "\ud800"'])
def test_a_file_that_holds_no_object(tmp_path: Path, content: str | None):
    path = tmp_path / "a.json"
    if content is not None:
        path.write_bytes(content.encode("utf-8", "surrogatepass"))
    assert read(path) is None and read_marker(path) is None


def test_a_marker_has_a_hash_of_each_row(tmp_path: Path):
    path, marker = tmp_path / "a.json", {"rows": 2, "rejected": 0, "input": "x", "each": "AAAAAAAAAAA=", "part": "y"}
    path.write_text(json.dumps(marker))
    assert read(path) == read_marker(path) == marker
    path.write_text(json.dumps({**marker, "rows": 3}))
    assert read_marker(path) is None
